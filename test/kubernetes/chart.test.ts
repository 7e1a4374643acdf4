import { readFileSync } from 'node:fs';
import { BlockList } from 'node:net';
import { join } from 'node:path';
import type { KubernetesObject, V1PodSpec } from '@kubernetes/client-node';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { KubernetesApi } from '../../src/sandbox/kubernetes/cluster.ts';
import { RIGHTS } from '../../src/sandbox/kubernetes/rights.ts';
import { CHART, helm } from '../parts/helm.ts';
import { KUBERNETES_START_MS, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';

const SECRETS =
  'storage.existingSecret=db,cluster.existingSecret=cluster,auth.existingSecret=auth,sandboxNamespace=pods';

/** Metadata addresses that the networks of process sandboxes block. */
const RULES = readFileSync(join(CHART, '../../runtimes/python/rookery_zygote/network_rules.py'), 'utf8');
const FORBIDDEN = [...(/^FORBIDDEN = \((.*)\)$/m.exec(RULES)?.[1] ?? '').matchAll(/"([^"]+)"/g)].map(
  ([, at]) => at ?? '',
);

function contains(network: string, inner: string): boolean {
  const [address = '', bits] = network.split('/');
  const list = new BlockList();
  list.addSubnet(address, Number(bits));
  return list.check(inner.split('/')[0] ?? '') && Number(inner.split('/')[1]) >= Number(bits);
}

async function render(sets: string, namespace = 'apart'): Promise<KubernetesObject[]> {
  const text = await helm(['template', 'mine', CHART, '--namespace', namespace, '--set', sets]);
  return parseAllDocuments(text)
    .map(document => document.toJS() as KubernetesObject)
    .filter(Boolean);
}

// biome-ignore lint/suspicious/noExplicitAny: objects of the API, of whatever kind
function one(objects: readonly KubernetesObject[], kind: string, ending = ''): any {
  const found = objects.filter(object => object.kind === kind && object.metadata?.name?.endsWith(ending));
  expect(found).toHaveLength(1);
  return found[0];
}

describeWith(['helm'], 'the chart', () => {
  let objects: KubernetesObject[];
  beforeAll(async () => {
    objects = await render(SECRETS);
  });

  test('the chart passes helm lint', async () => {
    expect(await helm(['lint', CHART, '--strict', '--set', SECRETS])).toContain('0 chart(s) failed');
  });

  test('the chart has the version of the program', () => {
    const { version } = JSON.parse(readFileSync(join(CHART, '../../package.json'), 'utf8')) as { version: string };
    const chart = parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8')) as Record<string, string>;
    expect(chart).toMatchObject({ version, appVersion: version });
  });

  test.each([
    ['no database Secret', 'cluster.existingSecret=c,auth.existingSecret=a', 'storage.existingSecret is needed'],
    [
      'pods in the namespace of the release without a consent',
      'storage.existingSecret=s,cluster.existingSecret=c,auth.existingSecret=a',
      'sandboxNamespace is needed',
    ],
    [
      'several servers without a common secret',
      'storage.existingSecret=s,auth.existingSecret=a,sandboxNamespace=p',
      'cluster.existingSecret is needed',
    ],
    [
      'authentication off without auth.insecure',
      'storage.existingSecret=s,cluster.existingSecret=c,sandboxNamespace=p',
      'auth.insecure=true is needed',
    ],
  ])('the chart is refused with %s', async (_, sets, sentence) => {
    await expect(render(sets)).rejects.toThrow(sentence);
  });

  test('the chart for one server needs no secret for replicas', async () => {
    const alone = await render('replicas=1,storage.existingSecret=s,auth.insecure=true,sandboxNamespace=p');
    expect(one(alone, 'ConfigMap').data['rookery.yaml']).not.toContain('cluster:');
    expect(one(alone, 'StatefulSet').spec.template.spec.initContainers).toBeUndefined();
  });

  test('every container of the chart runs without root, write access to its root file system, capabilities or escalation', () => {
    const pod = one(objects, 'StatefulSet').spec.template.spec as V1PodSpec;
    expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } });
    const containers = [...(pod.initContainers ?? []), ...pod.containers];
    expect(containers).toHaveLength(2);
    for (const { securityContext, resources } of containers) {
      expect(securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      });
      expect(resources?.limits?.memory).toBeDefined();
    }
    const [server] = pod.containers;
    expect(server?.livenessProbe?.httpGet?.path).toBe('/healthz');
    expect(server?.readinessProbe?.httpGet?.path).toBe('/readyz');
  });

  test('the chart refers to secrets by name, and no object contains a value', () => {
    expect(objects.filter(object => object.kind === 'Secret')).toEqual([]);
    const pod = one(objects, 'StatefulSet').spec.template.spec as V1PodSpec;
    const named = pod.volumes?.flatMap(volume => volume.secret?.secretName ?? []);
    expect(named?.sort()).toEqual(['auth', 'cluster', 'db']);
  });

  test('the server has rights in one namespace only, and only on objects that it uses', () => {
    expect(objects.filter(object => /^Cluster/.test(object.kind ?? ''))).toEqual([]);
    expect(one(objects, 'Role').rules).toEqual(
      RIGHTS.map(({ group, resource, verbs, isOfOurSecret }) => ({
        ...{ apiGroups: [group], resources: [resource], verbs },
        ...(isOfOurSecret && { resourceNames: ['mine-rookery-pods'] }),
      })),
    );
    const rules = one(objects, 'Role').rules as { apiGroups: string[]; resources: string[]; verbs: string[] }[];
    const all = rules.flatMap(({ apiGroups, resources, verbs }) => [...apiGroups, ...resources, ...verbs]);
    expect(all).not.toContain('*');
    for (const closed of [
      'pods/exec',
      'pods/attach',
      'pods/portforward',
      'serviceaccounts',
      'roles',
      'deletecollection',
    ]) {
      expect(all).not.toContain(closed);
    }
  });

  test('the server reads the Secret that its settings name and no other', async () => {
    const named = await render(`${SECRETS},podSecret=rookery-1234abcd`);
    for (const [chart, secret] of [
      [objects, 'mine-rookery-pods'],
      [named, 'rookery-1234abcd'],
    ] as const) {
      const settings = parse(one(chart, 'ConfigMap').data['rookery.yaml']) as { kubernetes: { secret: string } };
      expect(settings.kubernetes.secret).toBe(secret);
      const rules = one(chart, 'Role').rules as { resources: string[]; verbs: string[]; resourceNames?: string[] }[];
      const ofSecrets = rules.filter(({ resources }) => resources.includes('secrets'));
      expect(
        ofSecrets.filter(({ resourceNames }) => resourceNames === undefined).flatMap(({ verbs }) => verbs),
      ).toEqual(['create']);
      expect(ofSecrets.flatMap(({ resourceNames = [] }) => resourceNames)).toEqual([secret]);
    }
  });

  test('no tenant may change pools, and pools have only the image of the installation, unless values differ', async () => {
    const settingsOf = (chart: readonly KubernetesObject[]) =>
      (parse(one(chart, 'ConfigMap').data['rookery.yaml']) as { pools: object }).pools;
    expect(settingsOf(objects)).toEqual({ tenants: [], images: [] });
    const named = await render(`${SECRETS},pools.tenants={platform},pools.images={a:1}`);
    expect(settingsOf(named)).toEqual({ tenants: ['platform'], images: ['a:1'] });
  });

  test('the chart can place pods in the namespace of the release', async () => {
    const same = await render(`${SECRETS},sandboxNamespace=apart`);
    expect(one(same, 'Role').metadata.namespace).toBe('apart');
  });

  test('the chart puts the rights and network rules of pods into the namespace of pods', async () => {
    const apart = await render(SECRETS);
    expect(one(apart, 'Role').metadata.namespace).toBe('pods');
    expect(one(apart, 'RoleBinding').subjects[0].namespace).toBe('apart');
    expect(one(apart, 'NetworkPolicy', '-sandboxes').metadata.namespace).toBe('pods');
    expect(one(apart, 'ConfigMap').data['rookery.yaml']).toContain('namespace: pods');
  });

  describe('the network policies of the chart', () => {
    const matchServers = {
      'app.kubernetes.io/name': 'rookery',
      'app.kubernetes.io/instance': 'mine',
      'app.kubernetes.io/component': 'server',
    };

    test('only servers reach a pod, and only its manager', () => {
      const { spec } = one(objects, 'NetworkPolicy', '-sandboxes');
      expect(spec.podSelector.matchExpressions).toEqual([{ key: 'rookery.io/installation', operator: 'Exists' }]);
      expect(spec.policyTypes).toEqual(['Ingress', 'Egress']);
      expect(spec.ingress).toHaveLength(1);
      expect(spec.ingress[0].ports).toEqual([{ port: 8710, protocol: 'TCP' }]);
      expect(spec.ingress[0].from).toHaveLength(1);
      expect(spec.ingress[0].from[0].podSelector.matchLabels).toEqual(matchServers);
    });

    test('a pod reaches no private address except name servers: not the API server, the metadata service or another pod', () => {
      const { spec } = one(objects, 'NetworkPolicy', '-sandboxes');
      const blocks = spec.egress.flatMap((rule: { to: { ipBlock?: { cidr: string; except: string[] } }[] }) =>
        rule.to.flatMap(({ ipBlock }) => ipBlock ?? []),
      );
      expect(blocks.map(({ cidr }: { cidr: string }) => cidr)).toEqual(['0.0.0.0/0', '::/0']);
      expect(blocks[0].except).toEqual(expect.arrayContaining(['10.0.0.0/8', '169.254.0.0/16', '192.168.0.0/16']));
      expect(FORBIDDEN.length).toBeGreaterThan(3);
      const closed = blocks[0].except as string[];
      expect(FORBIDDEN.filter(address => !closed.some(network => contains(network, address)))).toEqual([]);
      const others = spec.egress.filter((rule: { to: { ipBlock?: unknown }[] }) => !rule.to.some(to => to.ipBlock));
      expect(others.flatMap((rule: { ports: { port: number }[] }) => rule.ports.map(({ port }) => port))).toEqual([
        53, 53, 7700,
      ]);
    });

    test('a pod without internet access reaches only name servers and the servers of Rookery', async () => {
      const closed = await render(`${SECRETS},networkPolicy.sandboxes.internet=false`);
      expect(JSON.stringify(one(closed, 'NetworkPolicy', '-sandboxes'))).not.toContain('ipBlock');
    });

    test('the cluster port of the servers is open to servers and pods of instances only', () => {
      const { spec } = one(objects, 'NetworkPolicy', '-servers');
      const inner = spec.ingress.filter((rule: { ports: { port: number }[] }) =>
        rule.ports.some(({ port }) => port === 7700),
      );
      expect(inner).toHaveLength(1);
      expect(inner[0].from).toHaveLength(2);
    });
  });
});

describeWith(['helm', 'kubernetes'], 'the chart in a cluster', () => {
  let namespace: TestNamespace;
  beforeAll(async () => {
    namespace = await kubernetesNamespace();
  }, KUBERNETES_START_MS);
  afterAll(() => namespace?.close());

  test.each([
    ['with default values', SECRETS],
    [
      'with every value set',
      `${SECRETS},hostNetwork=true,kubeconfig.existingSecret=k,persistence.enabled=false,networkPolicy.serverCidrs={192.0.2.0/24},replicas=3`,
    ],
  ])('the API server takes every object, %s', async (_, sets) => {
    const cluster = KubernetesApi.open({
      kubeconfig: namespace.kubeconfig,
      namespace: namespace.name,
      environment: {},
    });
    for (const object of await render(`${sets},sandboxNamespace=${namespace.name}`, namespace.name)) {
      const [group, version] = object.apiVersion?.includes('/')
        ? object.apiVersion.split('/')
        : ['', object.apiVersion];
      const root = group === '' ? `/api/${version}` : `/apis/${group}/${version}`;
      const plural = `${object.kind?.toLowerCase().replace(/y$/, 'ie')}s`;
      const path = `${root}/namespaces/${namespace.name}/${plural}`;
      // Strict validation also refuses fields that the API does not know.
      const query = { dryRun: 'All', fieldValidation: 'Strict' };
      await cluster.request(`take ${object.kind}`, { method: 'POST', path, query, body: object });
    }
    cluster.close();
  });
});
