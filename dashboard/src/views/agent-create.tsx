import { signal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { call, messageOf } from '../api.ts';
import { Failure, Input, Note, Title } from '../parts.tsx';

/** Warnings of the newest create on this page. No later answer contains all of them. */
const lastCreated = signal<{ readonly id: string; readonly warnings: readonly string[] }>({ id: '', warnings: [] });

export function CreateWarnings({ id }: { readonly id: string }) {
  const { id: lastId, warnings } = lastCreated.value;
  if (lastId !== id || warnings.length === 0) return null;
  return (
    <div class="warnings" role="status">
      <p>The agent was created with warnings:</p>
      <ul>
        {warnings.map(text => (
          <li key={text}>{text}</li>
        ))}
      </ul>
    </div>
  );
}

interface Form {
  readonly namespace: string;
  readonly name: string;
  readonly runtime: string;
  readonly code: string;
  readonly handler: string;
  readonly cpu: string;
  readonly memory: string;
  readonly sandbox: string;
  readonly image: string;
  readonly user: string;
  readonly ports: string;
  readonly variables: string;
}

const BEGIN: Form = {
  namespace: 'default',
  name: '',
  runtime: 'python3.11',
  code: '',
  handler: 'main.handler',
  cpu: '500',
  memory: '512',
  sandbox: '',
  image: 'host',
  user: '',
  ports: '',
  variables: '',
};

/** Path of the host's code in the sandbox. */
const CODE = '/code';

function bodyOf(form: Form): Record<string, unknown> {
  const ports = form.ports.split(/[\s,]+/).filter(Boolean);
  const variables = form.variables.split('\n').filter(line => line.includes('='));
  return {
    namespace: form.namespace,
    name: form.name,
    ...(form.code === '' ? {} : { mounts: [{ source: form.code, target: CODE, readonly: true }] }),
    ...(variables.length === 0
      ? {}
      : {
          env_vars: Object.fromEntries(
            variables.map(line => [line.slice(0, line.indexOf('=')).trim(), line.slice(line.indexOf('=') + 1)]),
          ),
        }),
    runtime_spec: {
      runtime: form.runtime,
      ...(form.sandbox === '' ? {} : { sandbox_type: form.sandbox }),
      ...(form.code === '' ? {} : { codePath: CODE }),
      handler: form.handler,
      cpu: Number(form.cpu),
      memory: Number(form.memory),
      rootfs: {
        imageurl: form.image,
        ...(form.user === '' ? {} : { user: form.user }),
        ...(ports.length === 0 ? {} : { ports }),
      },
    },
  };
}

export function AgentCreateView() {
  const [form, setForm] = useState(BEGIN);
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState('');
  const [isBusy, setBusy] = useState(false);
  const field = (name: keyof Form) => ({
    value: form[name],
    onInput: (value: string) => setForm({ ...form, [name]: value }),
  });
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError('');
    try {
      const body = text === null ? bodyOf(form) : ((await import('yaml')).parse(text) as object);
      const { instance_id: id, warnings = [] } = await call('createAgent', { body });
      lastCreated.value = { id, warnings };
      location.hash = `#/agents/${id}`;
    } catch (problem) {
      setError(messageOf(problem));
      setBusy(false);
    }
  };
  return (
    <>
      <Title text="New agent">
        <button
          type="button"
          aria-pressed={text !== null}
          onClick={() => setText(text === null ? JSON.stringify(bodyOf(form), null, 2) : null)}
        >
          As YAML or JSON
        </button>
      </Title>
      <form class="form" onSubmit={event => void submit(event)}>
        {text !== null ? (
          <Input label="Request" value={text} onInput={setText} lines={24} hint="The body of POST /api/agent." />
        ) : (
          <>
            <div class="grid">
              <Input label="Name" {...field('name')} isRequired />
              <Input label="Namespace" {...field('namespace')} isRequired />
              <Input label="Runtime" {...field('runtime')} hint="python3.11, go, java17, http, …" isRequired />
              <Input label="Handler" {...field('handler')} hint="module.function" />
              <Input label="Code" {...field('code')} hint={`A directory of the host, mounted at ${CODE}.`} />
              <Input
                label="Sandbox"
                {...field('sandbox')}
                options={['', 'docker', 'supervisor', 'kubernetes']}
                hint="any: the default driver"
              />
              <Input label="Image" {...field('image')} isRequired hint="The default driver only records the image." />
              <Input label="User" {...field('user')} hint="Empty: root." />
              <Input label="CPU" {...field('cpu')} type="number" hint="Millicores." isRequired />
              <Input label="Memory" {...field('memory')} type="number" hint="MB." isRequired />
              <Input label="Ports" {...field('ports')} hint="tcp:8080, udp:53" />
            </div>
            <Input label="Environment" {...field('variables')} lines={4} hint="NAME=value, one per line." />
          </>
        )}
        <div class="actions">
          <button type="submit" class="main" disabled={isBusy}>
            {isBusy ? 'Creating …' : 'Create'}
          </button>
          <a class="button" href="#/agents">
            Cancel
          </a>
        </div>
        <Failure text={error} />
        <Note>The agent opens when its code is loaded, or has failed to load.</Note>
      </form>
    </>
  );
}
