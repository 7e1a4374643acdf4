import { useState } from 'preact/hooks';
import { call, messageOf } from '../api.ts';
import { type ChosenCode, CodeInput, uploadCode } from '../code-upload.tsx';
import { type Faults, useForm, withoutEmpty } from '../form.ts';
import { Failure, Input, Note, Title } from '../parts.tsx';
import { faultOfLines, variablesOf } from '../variables.ts';

const BEGIN = {
  name: '',
  kind: 'faas',
  runtime: 'python3.11',
  handler: 'handler.handle',
  cpu: '500',
  memory: '512',
  timeout: '900',
  concurrentNum: '100',
  minInstance: '0',
  maxInstance: '100',
  dependencies: 'none',
  description: '',
  environment: '',
  secrets: '',
};
type Form = typeof BEGIN;

/** Returns the name of a function with its service: `hello`, `demo@hello` and `0@demo@hello` are allowed. */
function wholeName(text: string): string {
  const parts = text.trim().split('@');
  if (parts.length === 1) return `0@default@${text.trim()}`;
  return parts.length === 2 ? `0@${text.trim()}` : text.trim();
}

function bodyOf({ environment, secrets, ...form }: Form, codePath: string) {
  const { name, kind, runtime, handler, description, dependencies, ...numbers } = form;
  return {
    ...{ name: wholeName(name), kind, runtime, handler, dependencies, storageType: 'package', codePath },
    ...(description === '' ? {} : { description }),
    environment: variablesOf(environment, secrets),
    // An empty field has no number, so that the service reports the field.
    ...Object.fromEntries(Object.entries(numbers).map(([field, text]) => [field, text === '' ? '' : Number(text)])),
  };
}

/** Returns the faults that the page finds before it sends anything. */
function faultsOf({ name, environment, secrets }: Form, code: ChosenCode | null): Faults {
  return withoutEmpty({
    name: name.trim() === '' ? 'is required' : '',
    code: code === null ? 'is required' : '',
    environment: faultOfLines(environment, 'value'),
    secrets: faultOfLines(secrets, 'secret'),
  });
}

/** Splits the problems of a refusal into those of a field of the form, and the others. */
function splitProblems(message: string): { readonly faults: Faults; readonly others: string } {
  const faults: Record<string, string> = {};
  const others: string[] = [];
  for (const problem of message.replace(/^invalid request: /, '').split('; ')) {
    const [, field = '', text = ''] = /^(\w+)[\w.-]*:? (.+)$/s.exec(problem) ?? [];
    const isSecret = field === 'environment' && problem.includes('secret');
    const own = isSecret ? 'secrets' : field === 'codePath' ? 'code' : field;
    if (own === 'code' || Object.hasOwn(BEGIN, own)) faults[own] = own === field ? text : problem;
    else others.push(problem);
  }
  return { faults, others: others.join('; ') };
}

export function FunctionCreateView() {
  const { form, faults, setFaults, clear, field } = useForm(BEGIN);
  const [code, setCode] = useState<ChosenCode | null>(null);
  const [error, setError] = useState('');
  const [step, setStep] = useState('');
  const submit = async (event: Event) => {
    event.preventDefault();
    const found = faultsOf(form, code);
    setFaults(found);
    setError('');
    if (code === null || Object.keys(found).length > 0) return;
    let codePath: string;
    try {
      setStep('Uploading …');
      codePath = await uploadCode(code);
    } catch (problem) {
      setFaults({ code: messageOf(problem) });
      setStep('');
      return;
    }
    try {
      setStep('Creating …');
      const answer = await call('registerFunction', { body: bodyOf(form, codePath) });
      const { function: fn } = answer as Extract<typeof answer, { function: unknown }>;
      location.hash = `#/functions/${encodeURIComponent(fn.name)}`;
    } catch (problem) {
      const { faults: reported, others } = splitProblems(messageOf(problem));
      setFaults(reported);
      setError(others);
      setStep('');
    }
  };
  return (
    <>
      <Title text="New function" />
      <form class="form" noValidate onSubmit={event => void submit(event)}>
        <div class="grid">
          <Input label="Name" {...field('name')} hint="hello, or demo@hello: the function hello of the service demo." />
          <Input
            label="Kind"
            {...field('kind')}
            options={['faas', 'agent']}
            hint="agent: also for agents of a version."
          />
          <Input label="Runtime" {...field('runtime')} hint="python3.11, nodejs22, go, java17, http, …" />
          <Input label="Handler" {...field('handler')} hint="module.function" />
        </div>
        <CodeInput
          code={code}
          fault={faults.code ?? ''}
          onChosen={chosen => {
            setCode(chosen);
            clear('code');
          }}
        />
        <div class="grid">
          <Input label="CPU" {...field('cpu')} type="number" hint="Millicores of an instance." />
          <Input label="Memory" {...field('memory')} type="number" hint="MB of an instance." />
          <Input label="Timeout" {...field('timeout')} type="number" hint="Seconds of a call." />
          <Input label="Concurrency" {...field('concurrentNum')} type="number" hint="Calls at once in one instance." />
          <Input label="Instances, at least" {...field('minInstance')} type="number" hint="Always warm." />
          <Input label="Instances, at most" {...field('maxInstance')} type="number" />
          <Input
            label="Dependencies"
            {...field('dependencies')}
            options={['none', 'auto']}
            hint="auto: installs requirements.txt, package.json and the like."
          />
          <Input label="Description" {...field('description')} />
        </div>
        <div class="grid two">
          <Input label="Environment" {...field('environment')} lines={4} hint="NAME=value, one per line." />
          <Input label="Secrets" {...field('secrets')} lines={4} hint="NAME=name of a secret, one per line." />
        </div>
        <div class="actions">
          <button type="submit" class="main" disabled={step !== ''}>
            {step === '' ? 'Create' : step}
          </button>
          <a class="button" href="#/functions">
            Cancel
          </a>
        </div>
        <Failure text={error} />
        <Note>
          A directory is packed as the command line does it, without .git, node_modules, __pycache__ and .venv. “rookery
          function register” has every other setting.
        </Note>
      </form>
    </>
  );
}
