import { type Faults, withoutEmpty } from './form.ts';
import { faultOfLines, variablesOf } from './variables.ts';

/** First texts of the form of a new agent, by the names that the fields have in the request. */
export const BEGIN = {
  name: '',
  namespace: 'default',
  runtime: 'python3.11',
  handler: 'main.handler',
  hostPath: '',
  dependencies: 'none',
  cpu: '500',
  memory: '512',
  ports: '',
  port: '',
  access: 'token',
  policy: 'never',
  max_restarts: '',
  env_vars: '',
  secrets: '',
  sandbox_type: '',
  imageurl: 'host',
  user: '',
  durable: 'no',
  ttl_seconds: '',
  idle_seconds: '',
  on_expiry: 'delete',
  labels: '',
};
export type AgentForm = typeof BEGIN;

/** Path of the code in the sandbox. */
export const CODE = '/code';

/** Returns the body of a create. `source` is a code package or a directory of the host; `''`: no code. */
export function bodyOf(form: AgentForm, source: string): object {
  const ports = form.ports.split(/[\s,]+/).filter(Boolean);
  const labels = variablesOf(form.labels, '');
  const environment = variablesOf(form.env_vars, form.secrets);
  const { name, namespace, runtime, handler, policy, durable, on_expiry } = form;
  return {
    ...{ namespace, name },
    ...(source === '' ? {} : { mounts: [{ source, target: CODE, readonly: true }] }),
    ...(Object.keys(environment).length === 0 ? {} : { env_vars: environment }),
    runtime_spec: {
      runtime,
      ...(form.sandbox_type === '' ? {} : { sandbox_type: form.sandbox_type }),
      ...(source === '' ? {} : { codePath: CODE }),
      handler,
      ...(form.dependencies === 'none' ? {} : { dependencies: form.dependencies }),
      cpu: numberOf(form.cpu),
      memory: numberOf(form.memory),
      rootfs: {
        imageurl: form.imageurl,
        ...(form.user === '' ? {} : { user: form.user }),
        ...(ports.length === 0 ? {} : { ports }),
      },
    },
    ...(form.port === '' ? {} : { expose: { port: numberOf(form.port), access: form.access } }),
    ...(policy === 'never' ? {} : { restart_policy: { policy, ...ifSet('max_restarts', form.max_restarts) } }),
    ...(durable === 'yes' ? { durable: true } : {}),
    ...ifSet('ttl_seconds', form.ttl_seconds),
    ...ifSet('idle_seconds', form.idle_seconds),
    ...(on_expiry === 'delete' ? {} : { on_expiry }),
    ...(Object.keys(labels).length === 0 ? {} : { labels }),
  };
}

/** Returns the faults that the page finds before it sends anything. */
export function faultsOf(form: AgentForm, hasUpload: boolean): Faults {
  const required = (text: string) => (text.trim() === '' ? 'is required' : '');
  return withoutEmpty({
    name: required(form.name),
    namespace: required(form.namespace),
    runtime: required(form.runtime),
    code: hasUpload && form.hostPath !== '' ? 'choose an upload or a path on the host, not both' : '',
    env_vars: faultOfLines(form.env_vars, 'value'),
    secrets: faultOfLines(form.secrets, 'secret'),
    labels: faultOfLines(form.labels, 'value'),
  });
}

/** Parts of a request that have no field of their own. */
const CONTAINERS = /^(?:(?:runtime_spec|rootfs|expose|restart_policy)\.)+/;
/** Refusals that name no field. */
const KNOWN: readonly (readonly [pattern: RegExp, field: string])[] = [
  [/^expose: /, 'port'],
  [/secret does not exist: /, 'secrets'],
  [/^agent .* already exists$/s, 'name'],
  [/^(?:unsafe )?mount source\b/, 'code'],
  [/ is no known runtime /, 'runtime'],
];

/** Returns the field that a refusal is about, or null, and its text for a person. */
export function placeOf(message: string, form: AgentForm): { readonly field: string | null; readonly text: string } {
  const problem = message.replace(/^(?:invalid request body|failed to create agent): /, '');
  const known = KNOWN.find(([pattern]) => pattern.test(problem));
  if (known !== undefined) return { field: known[1], text: problem };
  const [path = '', name = ''] = /^(\w+)\S*/.exec(problem.replace(CONTAINERS, '')) ?? [];
  if (!Object.hasOwn(BEGIN, name)) return { field: null, text: message };
  if (path === name) return { field: name, text: problem.replace(CONTAINERS, '').slice(path.length + 1) };
  const isSecret = name === 'env_vars' && Object.hasOwn(variablesOf('', form.secrets), path.slice(name.length + 1));
  return { field: isSecret ? 'secrets' : name, text: problem };
}

/** Returns a number; an empty text is returned as it is, so that the service reports its field. */
function numberOf(text: string): number | string {
  return text === '' ? '' : Number(text);
}

function ifSet(name: string, text: string): object {
  return text === '' ? {} : { [name]: Number(text) };
}
