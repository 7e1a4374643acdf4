import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type ClusterFacts, kubernetesFindings } from '../../src/doctor/kubernetes.ts';
import { type Diagnosis, diagnose } from '../../src/sandbox/kubernetes/diagnosis.ts';
import { KUBERNETES_START_MS, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { NO_POD_SETTINGS } from '../sandbox/kubernetes-fixture.ts';

const FACTS: ClusterFacts = {
  server: 'https://10.0.0.1',
  namespace: 'pods',
  version: 'v1.34.2',
  missingRights: [],
  refusal: null,
  reachable: { address: '10.1.2.3', problem: null },
};
const NEEDED = { isNeeded: true, image: 'registry.example.com/rookery:1', pools: null };

describe('findings of doctor about a cluster', () => {
  const statuses = (facts: Partial<ClusterFacts>, chosen = NEEDED) =>
    kubernetesFindings({ ...FACTS, ...facts }, chosen).map(({ status }) => status);

  test('every finding is ok when nothing is missing', () => {
    expect(statuses({})).toEqual(['ok', 'ok', 'ok', 'ok', 'ok']);
    expect(statuses({ reachable: null })).toEqual(['ok', 'ok', 'ok', 'ok', 'ok']);
  });

  test.each<[string, Partial<ClusterFacts>, number]>([
    ['a cluster that does not answer', { version: { problem: 'nothing listens there' } }, 0],
    ['a missing right', { missingRights: [{ right: 'create pods', without: 'no instance can run' }] }, 1],
    ['a pod that the cluster refuses', { refusal: 'there is no namespace pods' }, 2],
    ['a pod that the server cannot reach', { reachable: { address: '10.1.2.3', problem: 'timed out' } }, 3],
  ])('the finding for %s is a failure when instances run on Kubernetes, else a warning', (_, facts, row) => {
    expect(statuses(facts)[row]).toBe('fail');
    expect(statuses(facts, { ...NEEDED, isNeeded: false })[row]).toBe('warn');
  });

  test('the finding for a missing right names the feature that does not work without the right', () => {
    const missingRights = [{ right: 'watch pods', without: 'no instance can run' }];
    const [, rights] = kubernetesFindings({ ...FACTS, missingRights }, NEEDED);
    expect(rights?.notes).toContain('It may not watch pods: no instance can run.');
  });

  test.each([
    [null, 'every caller may change them', 'Authentication is off'],
    [{ tenants: [], images: ['ours:1'] }, 'no tenant may change them', 'pools.tenants is empty'],
    [{ tenants: ['ops'], images: ['ours:1'] }, 'developers of ops may change them', 'pools.images): ours:1'],
  ])('the finding for pools names the tenants that may change pools when the settings are %j', (pools, text, note) => {
    const row = kubernetesFindings(FACTS, { ...NEEDED, pools })[4];
    expect(row).toMatchObject({ name: 'cluster pools', status: 'ok', text });
    expect(row?.notes.join(' ')).toContain(note);
  });

  test('the finding for pods is a warning when no image is set', () => {
    expect(kubernetesFindings(FACTS, { isNeeded: true, image: null, pools: null })[2]?.status).toBe('warn');
  });
});

describeWith(['kubernetes'], 'doctor checks a real cluster', () => {
  let namespace: TestNamespace;
  beforeAll(async () => {
    namespace = await kubernetesNamespace();
    await vi.waitFor(() => namespace.core.readNamespacedServiceAccount({ name: 'default', namespace: namespace.name }));
  }, KUBERNETES_START_MS);
  afterAll(() => namespace?.close());

  function look(options: { kubeconfig?: string; namespace?: string } = {}): Promise<Diagnosis> {
    const { kubeconfig = namespace.kubeconfig, namespace: name = namespace.name } = options;
    const place = { kubeconfig, namespace: name, secret: null, environment: {} };
    return diagnose({ ...place, image: 'rookery:1', pod: NO_POD_SETTINGS });
  }

  test('the check of an administrator finds no missing right and no refusal, and creates nothing', async () => {
    expect(await look()).toMatchObject({
      namespace: namespace.name,
      version: expect.stringMatching(/^v1\.\d+/),
      missingRights: [],
      refusal: null,
      reachable: null,
    });
    const { items } = await namespace.core.listNamespacedPod({ namespace: namespace.name });
    expect(items).toEqual([]);
  });

  test('the refusal names the namespace when it does not exist', async () => {
    expect(await look({ namespace: 'rookery-test-nowhere' })).toMatchObject({
      refusal: 'there is no namespace rookery-test-nowhere',
    });
  });

  test('the refusal repeats the words of the policy when a policy of the namespace refuses pods', async () => {
    const quota = { metadata: { name: 'none' }, spec: { hard: { pods: '0' } } };
    await namespace.core.createNamespacedResourceQuota({ namespace: namespace.name, body: quota });
    await vi.waitFor(async () => expect((await look()).refusal).toMatch(/exceeded quota: none/));
    await namespace.core.deleteNamespacedResourceQuota({ namespace: namespace.name, name: 'none' });
  });
});
