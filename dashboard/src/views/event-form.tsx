import { useState } from 'preact/hooks';
import { Input } from '../parts.tsx';
import {
  ABSENT,
  bodyOf,
  faultOf,
  type ReportedFault,
  type SchemaField,
  type SchemaGroup,
  type SchemaPart,
  SENT,
  textsOf,
} from '../schema-fields.ts';

interface EventFormProps {
  readonly parts: readonly SchemaPart[];
  /** The body whose members the fields show at first. */
  readonly body: string;
  /** The fault that the service found in the last body. */
  readonly fault: ReportedFault | null;
  readonly onBody: (body: string) => void;
}

/** The fields of an event. Writes the body at each input. Labels are the paths that the service reports. */
export function EventForm({ parts, body, fault, onBody }: EventFormProps) {
  const [texts, setTexts] = useState(() => textsOf(parts, body));
  const change = (key: string, text: string) => {
    const changed = { ...texts, [key]: text };
    setTexts(changed);
    onBody(bodyOf(parts, changed, body));
  };
  return <Parts parts={parts} shown={{ texts, fault, change }} />;
}

interface Shown {
  readonly texts: Readonly<Record<string, string>>;
  readonly fault: ReportedFault | null;
  readonly change: (key: string, text: string) => void;
}

function Parts({ parts, shown }: { readonly parts: readonly SchemaPart[]; readonly shown: Shown }) {
  return (
    <div class="grid">
      {parts.map(part =>
        part.kind === 'group' ? (
          <Group key={part.key} group={part} shown={shown} />
        ) : (
          <Field key={part.key} field={part} shown={shown} />
        ),
      )}
    </div>
  );
}

/** The fields of an object below its path. The body has an optional object only while its box is checked. */
function Group({ group, shown }: { readonly group: SchemaGroup; readonly shown: Shown }) {
  const { key, path, isRequired, hint, members } = group;
  const { texts, fault, change } = shown;
  const isSent = texts[key] === SENT;
  return (
    <fieldset class="group">
      <legend>
        {isRequired ? (
          path
        ) : (
          <label class="check">
            <input
              type="checkbox"
              checked={isSent}
              onChange={event => change(key, event.currentTarget.checked ? SENT : ABSENT)}
            />
            {path}
          </label>
        )}
      </legend>
      {hint === '' ? null : <small class="hint">{hint}</small>}
      {fault?.key === key ? <small class="fault">{fault.text}</small> : null}
      {isSent ? <Parts parts={members} shown={shown} /> : null}
    </fieldset>
  );
}

function Field({ field, shown }: { readonly field: SchemaField; readonly shown: Shown }) {
  const { key, path, kind, choices, isRequired, hint } = field;
  const { texts, fault, change } = shown;
  const text = texts[key] ?? '';
  const options = kind === 'choice' ? { options: [...(isRequired ? [] : [ABSENT]), ...choices.map(String)] } : {};
  const lines = kind === 'list' || kind === 'json' ? { lines: 3 } : {};
  return (
    <Input
      id={key}
      label={path}
      value={text}
      onInput={changed => change(key, changed)}
      hint={hint}
      isRequired={isRequired}
      type={kind === 'integer' ? 'number' : 'text'}
      fault={fault?.key === key ? fault.text : faultOf(field, text)}
      {...options}
      {...lines}
    />
  );
}
