import { useState } from 'preact/hooks';
import { type AnswerOf, call, may, messageOf } from '../api.ts';
import { useLoaded } from '../live.ts';
import { Action, ago, Failure, Input, Loading, Note, Panel, Table, Title } from '../parts.tsx';

type Secret = AnswerOf<'listSecrets'>['secrets'][number];

/** Names and times of secrets. No route returns a value. */
export function SecretsView() {
  const { value, error, reload } = useLoaded(
    'secrets',
    async signal => (await call('listSecrets', { signal })).secrets,
  );
  return (
    <>
      <Title text="Secrets" />
      <Failure text={error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <Table<Secret>
          label="Secrets"
          rows={value}
          keyOf={secret => secret.name}
          empty="There is no secret. “rookery secret set” writes one."
          columns={[
            { title: 'Name', cell: secret => secret.name, isMono: true },
            { title: 'Created', cell: secret => ago(secret.created_at), isNumber: true },
            { title: 'Written', cell: secret => ago(secret.updated_at), isNumber: true },
            {
              title: 'Problem',
              cell: secret => (secret.readable ? '' : 'The key is missing. Write the secret again.'),
            },
            {
              title: '',
              cell: secret =>
                may('write') ? (
                  <Action
                    key={secret.name}
                    text="Delete"
                    sure={`Delete the secret ${secret.name}?`}
                    work={async () => {
                      await call('deleteSecret', { params: { name: secret.name } });
                      reload();
                    }}
                  />
                ) : null,
            },
          ]}
        />
      )}
      {may('write') ? <WriteSecret written={reload} /> : null}
      <Note>
        An environment refers to a secret as {'{"secret": "name"}'}. No record and no answer contains its value.
      </Note>
    </>
  );
}

function WriteSecret({ written }: { readonly written: () => void }) {
  const [name, setName] = useState('');
  const [text, setText] = useState('');
  const [problem, setProblem] = useState('');
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await call('putSecret', { params: { name }, body: { value: text } });
      setName('');
      setText('');
      setProblem('');
      written();
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  return (
    <Panel title="Write a secret">
      <form onSubmit={event => void submit(event)} autocomplete="off">
        <Input label="Name" value={name} onInput={setName} isRequired hint="An existing secret gets the new value." />
        <Input label="Value" type="password" value={text} onInput={setText} isRequired />
        <button type="submit" class="main">
          Write
        </button>
        <Failure text={problem} />
      </form>
    </Panel>
  );
}
