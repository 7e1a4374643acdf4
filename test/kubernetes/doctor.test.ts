import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type ClusterFacts, kubernetesFindings } from '../../src/cli/doctor-kubernetes.ts';
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
const NEEDED = { isNeeded: true, image: 'registry.example.com/rookery:1' };

describe('what doctor says of a cluster', () => {
  const statuses = (facts: Partial<ClusterFacts>, chosen = NEEDED) =>
    kubernetesFindings({ ...FACTS, ...facts }, chosen).map(({ status }) => status);

  test('all is well where nothing is missing', () => {
    expect(statuses({})).toEqual(['ok', 'ok', 'ok', 'ok']);
    expect(statuses({ reachable: null })).toEqual(['ok', 'ok', 'ok', 'ok']);
  });

  test.each<[string, Partial<ClusterFacts>, number]>([
    ['a cluster that does not answer', { version: { problem: 'nothing listens there' } }, 0],
    ['a right that is missing', { missingRights: [{ right: 'create pods', without: 'no instance can run' }] }, 1],
    ['a pod that would be refused', { refusal: 'there is no namespace pods' }, 2],
    ['a pod that is not reached', { reachable: { address: '10.1.2.3', problem: 'timed out' } }, 3],
  ])('%s is a failure where instances run there, else a warning', (_, facts, row) => {
    expect(statuses(facts)[row]).toBe('fail');
    expect(statuses(facts, { ...NEEDED, isNeeded: false })[row]).toBe('warn');
  });

  test('a missing right says what does not work without it', () => {
    const missingRights = [{ right: 'watch pods', without: 'no instance can run' }];
    const [, rights] = kubernetesFindings({ ...FACTS, missingRights }, NEEDED);
    expect(rights?.notes).toContain('It may not watch pods: no instance can run.');
  });

  test('an image that no registry has is worth a warning', () => {
    expect(kubernetesFindings(FACTS, { isNeeded: true, image: null })[2]?.status).toBe('warn');
  });
});

describeWith(['kubernetes'], 'doctor looks at a cluster', () => {
  let namespace: TestNamespace;
  beforeAll(async () => {
    namespace = await kubernetesNamespace();
    await vi.waitFor(() => namespace.core.readNamespacedServiceAccount({ name: 'default', namespace: namespace.name }));
  }, KUBERNETES_START_MS);
  afterAll(() => namespace?.close());

  function look(options: { kubeconfig?: string; namespace?: string } = {}): Promise<Diagnosis> {
    const { kubeconfig = namespace.kubeconfig, namespace: name = namespace.name } = options;
    return diagnose({ kubeconfig, namespace: name, image: 'rookery:1', environment: {}, pod: NO_POD_SETTINGS });
  }

  test('an administrator lacks nothing, a pod would be taken, and nothing is made', async () => {
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

  test('a namespace that is not there is said', async () => {
    expect(await look({ namespace: 'rookery-test-nowhere' })).toMatchObject({
      refusal: 'there is no namespace rookery-test-nowhere',
    });
  });

  test('a policy of the namespace that refuses our pods is told in its words', async () => {
    const quota = { metadata: { name: 'none' }, spec: { hard: { pods: '0' } } };
    await namespace.core.createNamespacedResourceQuota({ namespace: namespace.name, body: quota });
    await vi.waitFor(async () => expect((await look()).refusal).toMatch(/exceeded quota: none/));
    await namespace.core.deleteNamespacedResourceQuota({ namespace: namespace.name, name: 'none' });
  });
});
