import { expect, it } from 'vitest';
import { BEGIN, bodyOf, faultsOf, placeOf } from './agent-request.ts';

const MADE = { ...BEGIN, name: 'made' };

it('an agent without other fields has only its names, its runtime and its resources', () => {
  expect(bodyOf(MADE, '')).toEqual({
    namespace: 'default',
    name: 'made',
    runtime_spec: {
      ...{ runtime: 'python3.11', handler: 'main.handler', cpu: 500, memory: 512 },
      rootfs: { imageurl: 'host' },
    },
  });
});

it('the request of an agent has each field that was filled', () => {
  const form = {
    ...MADE,
    ...{ env_vars: 'A=1', secrets: 'KEY=db', ports: 'tcp:8080, udp:53', port: '8080', access: 'link' },
    ...{ policy: 'on-failure', max_restarts: '3', sandbox_type: 'docker', user: 'app', dependencies: 'auto' },
    ...{ durable: 'yes', ttl_seconds: '60', idle_seconds: '5', on_expiry: 'pause', labels: 'team=red', cpu: '' },
  };
  expect(bodyOf(form, 'code://x')).toEqual({
    namespace: 'default',
    name: 'made',
    mounts: [{ source: 'code://x', target: '/code', readonly: true }],
    env_vars: { A: '1', KEY: { secret: 'db' } },
    runtime_spec: {
      ...{ runtime: 'python3.11', handler: 'main.handler', cpu: '', memory: 512 },
      ...{ sandbox_type: 'docker', codePath: '/code', dependencies: 'auto' },
      rootfs: { imageurl: 'host', user: 'app', ports: ['tcp:8080', 'udp:53'] },
    },
    expose: { port: 8080, access: 'link' },
    restart_policy: { policy: 'on-failure', max_restarts: 3 },
    ...{ durable: true, ttl_seconds: 60, idle_seconds: 5, on_expiry: 'pause' },
    labels: { team: 'red' },
  });
});

it('the page finds missing names, wrong lines, and an upload beside a path on the host', () => {
  const form = { ...BEGIN, namespace: ' ', hostPath: '/srv', env_vars: 'A', secrets: '=b', labels: 'c' };
  expect(Object.keys(faultsOf(form, true))).toEqual(['name', 'namespace', 'code', 'env_vars', 'secrets', 'labels']);
  expect(faultsOf({ ...MADE, hostPath: '/srv' }, false)).toEqual({});
});

it.each([
  ['invalid request body: name is required', 'name', 'is required'],
  ['invalid request body: runtime_spec.cpu must be an integer', 'cpu', 'must be an integer'],
  ['invalid request body: runtime_spec.rootfs.imageurl is required', 'imageurl', 'is required'],
  ['invalid request body: runtime_spec.rootfs.ports[1] must be x', 'ports', 'runtime_spec.rootfs.ports[1] must be x'],
  ['invalid request body: expose.port must be between', 'port', 'must be between'],
  ['invalid request body: expose: agent a/B can have no address', 'port', 'expose: agent a/B can have no address'],
  ['invalid request body: restart_policy.max_restarts must be', 'max_restarts', 'must be'],
  ['invalid request body: labels.name must be a string', 'labels', 'labels.name must be a string'],
  ['invalid request body: env_vars.1A must have a name', 'env_vars', 'env_vars.1A must have a name'],
  ['invalid request body: env_vars.1K must have a name', 'secrets', 'env_vars.1K must have a name'],
  ['failed to create agent: secret does not exist: db', 'secrets', 'secret does not exist: db'],
  ['failed to create agent: agent default/a already exists', 'name', 'agent default/a already exists'],
  ['unsafe mount source: /', 'code', 'unsafe mount source: /'],
  ['failed to create agent: mount source does not exist: /x', 'code', 'mount source does not exist: /x'],
  ['failed to create agent: "b" is no known runtime (x)', 'runtime', '"b" is no known runtime (x)'],
  ['failed to create agent: the machine is full', null, 'failed to create agent: the machine is full'],
])('the refusal “%s” belongs to the field %s', (message, field, text) => {
  expect(placeOf(message, { ...MADE, secrets: '1K=db' })).toEqual({ field, text });
});
