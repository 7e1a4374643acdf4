import { signal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { type AgentForm, BEGIN, bodyOf, CODE, faultsOf, placeOf } from '../agent-request.ts';
import { call, messageOf } from '../api.ts';
import { type ChosenCode, CodeInput, uploadCode } from '../code-upload.tsx';
import { type Faults, useForm } from '../form.ts';
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

/** Fields that are folded until they are needed. */
const FOLDED: readonly (keyof AgentForm)[] = [
  ...(['sandbox_type', 'imageurl', 'user', 'max_restarts'] as const),
  ...(['durable', 'ttl_seconds', 'idle_seconds', 'on_expiry', 'labels'] as const),
];

export function AgentCreateView() {
  const { form, faults, setFaults, clear, field } = useForm(BEGIN);
  const [code, setCode] = useState<ChosenCode | null>(null);
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState('');
  const [step, setStep] = useState('');
  const [isOpen, setOpen] = useState(false);
  const show = (found: Faults) => {
    setFaults(found);
    if (FOLDED.some(name => Object.hasOwn(found, name))) setOpen(true);
  };
  /** Uploads the code. Returns the body of the form, or null if the code cannot be sent. */
  const upload = async (): Promise<object | null> => {
    if (code === null) return bodyOf(form, form.hostPath);
    setStep('Uploading …');
    try {
      return bodyOf(form, await uploadCode(code));
    } catch (problem) {
      show({ code: messageOf(problem) });
      return null;
    } finally {
      setStep('');
    }
  };
  const create = async (body: object) => {
    setStep('Creating …');
    const { instance_id: id, warnings = [] } = await call('createAgent', { body });
    lastCreated.value = { id, warnings };
    location.hash = `#/agents/${id}`;
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    setError('');
    try {
      if (text !== null) return await create((await import('yaml')).parse(text) as object);
      const found = faultsOf(form, code !== null);
      show(found);
      const body = Object.keys(found).length === 0 ? await upload() : null;
      if (body !== null) await create(body);
    } catch (problem) {
      setStep('');
      const { field: name, text: fault } = placeOf(messageOf(problem), form);
      if (text === null && name !== null) show({ [name]: fault });
      else setError(messageOf(problem));
    }
  };
  const toggleText = async () => {
    const body = text === null ? await upload() : null;
    setText(body === null ? null : JSON.stringify(body, null, 2));
  };
  return (
    <>
      <Title text="New agent">
        <button type="button" aria-pressed={text !== null} onClick={() => void toggleText()}>
          As YAML or JSON
        </button>
      </Title>
      <form class="form" noValidate onSubmit={event => void submit(event)}>
        {text !== null ? (
          <Input label="Request" value={text} onInput={setText} lines={24} hint="The body of POST /api/agent." />
        ) : (
          <>
            <div class="grid">
              <Input label="Name" {...field('name')} />
              <Input label="Namespace" {...field('namespace')} />
              <Input label="Runtime" {...field('runtime')} hint="python3.11, nodejs22, go, java17, http, …" />
              <Input label="Handler" {...field('handler')} hint="module.function" />
            </div>
            <CodeInput
              code={code}
              fault={faults.code ?? ''}
              hint={`Choose a directory, or an archive with the code at its root. The agent has it at ${CODE}.`}
              onChosen={chosen => {
                setCode(chosen);
                clear('code');
              }}
            >
              <Input label="Path on the host" {...field('hostPath')} hint="A directory, instead of an upload." />
            </CodeInput>
            <div class="grid">
              <Input label="CPU" {...field('cpu')} type="number" hint="Millicores." />
              <Input label="Memory" {...field('memory')} type="number" hint="MB." />
              <Input
                label="Dependencies"
                {...field('dependencies')}
                options={['none', 'auto']}
                hint="auto: installs requirements.txt, package.json and the like."
              />
              <Input
                label="Restart policy"
                {...field('policy')}
                options={['never', 'on-failure', 'always']}
                hint="When its sandbox ends by itself."
              />
              <Input label="Ports" {...field('ports')} hint="tcp:8080, udp:53" />
              <Input label="Exposed port" {...field('port')} type="number" hint="Gets an address of its own." />
              <Input
                label="Access"
                {...field('access')}
                options={['token', 'link', 'public']}
                hint="Clients of the exposed port."
              />
            </div>
            <div class="grid two">
              <Input label="Environment" {...field('env_vars')} lines={4} hint="NAME=value, one per line." />
              <Input label="Secrets" {...field('secrets')} lines={4} hint="NAME=name of a secret, one per line." />
            </div>
            <details open={isOpen} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
              <summary>More</summary>
              <Folded field={field} />
            </details>
          </>
        )}
        <div class="actions">
          <button type="submit" class="main" disabled={step !== ''}>
            {step === '' ? 'Create' : step}
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

function Folded({ field }: { readonly field: ReturnType<typeof useForm<AgentForm>>['field'] }) {
  return (
    <div class="grid">
      <Input
        label="Sandbox"
        {...field('sandbox_type')}
        options={['', 'docker', 'supervisor', 'kubernetes']}
        hint="any: the default driver"
      />
      <Input label="Image" {...field('imageurl')} hint="The default driver only records the image." />
      <Input label="User" {...field('user')} hint="Empty: root." />
      <Input
        label="Restarts in a row"
        {...field('max_restarts')}
        type="number"
        hint="At most. Empty: the default of the policy."
      />
      <Input
        label="Durable"
        {...field('durable')}
        options={['no', 'yes']}
        hint="yes: context.state survives restarts."
      />
      <Input label="Time to live" {...field('ttl_seconds')} type="number" hint="Seconds. Empty: until it is deleted." />
      <Input label="Idle time" {...field('idle_seconds')} type="number" hint="Seconds without a call. Empty: no end." />
      <Input label="At its end" {...field('on_expiry')} options={['delete', 'pause']} hint="Of either time." />
      <Input label="Labels" {...field('labels')} lines={3} hint="NAME=value, one per line." />
    </div>
  );
}
