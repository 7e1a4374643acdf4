import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { call, messageOf, raw } from '../api.ts';
import { CALL_MODES, type CallMode, type CallTarget, headersIn } from '../call-text.ts';
import { CopyCall } from '../copy-call.tsx';
import { Failure, Fields, Input, Panel, Status, short, Text } from '../parts.tsx';
import { bodyOf, faultIn, fieldsOf, type ReportedFault, type SchemaPart, textsOf } from '../schema-fields.ts';
import { EventForm } from './event-form.tsx';
import { Waterfall } from './waterfall.tsx';

interface Result {
  readonly status: number;
  readonly ms: number;
  readonly headers: readonly (readonly [string, string])[];
  readonly text: string;
  readonly timing: string;
}

const SHOWN_HEADERS = [
  'x-trace-id',
  'x-inner-code',
  'x-instance-id',
  'x-billing-duration',
  'content-type',
  'retry-after',
];
const POLL_MS = 1000;

interface CallPanelProps {
  readonly path: string;
  readonly target: CallTarget;
  /** The JSON Schema of the event. Objects become the fields of a form. */
  readonly schema?: unknown;
}

/**
 * A form that calls an agent or a function and shows the answer while it arrives. Calls of a function may
 * also stream or be asynchronous.
 */
export function CallPanel({ path, target, schema }: CallPanelProps) {
  const isFunction = target.kind === 'function';
  const schemaText = JSON.stringify(schema);
  // Reads of the same record give equal schemas in new objects.
  const fields = useMemo(() => fieldsOf(schema), [schemaText]);
  const [isForm, setForm] = useState(true);
  const [body, setBody] = useState(() => completed(fields, '{}'));
  const [headers, setHeaders] = useState('');
  const [mode, setMode] = useState<CallMode>('answer');
  const [result, setResult] = useState<Result | null>(null);
  const [error, setError] = useState('');
  const [fault, setFault] = useState<ReportedFault | null>(null);
  const [isBusy, setBusy] = useState(false);
  const controller = useRef<AbortController | null>(null);
  useEffect(() => () => controller.current?.abort(), []);

  const send = async () => {
    const ends = new AbortController();
    controller.current = ends;
    setBusy(true);
    setError('');
    setFault(null);
    setResult(null);
    try {
      const sent = new Headers({ 'content-type': 'application/json' });
      for (const [name, value] of headersIn(headers)) sent.set(name, value);
      if (mode === 'stream') sent.set('accept', 'text/event-stream');
      if (mode === 'async') sent.set('x-invoke-type', 'async');
      const beganMs = performance.now();
      const response = await raw(path, { method: 'POST', body, headers: sent, signal: ends.signal });
      const found = [...response.headers].filter(([name]) => SHOWN_HEADERS.includes(name));
      const show = (text: string) =>
        setResult({
          status: response.status,
          ms: performance.now() - beganMs,
          headers: found,
          text,
          timing: response.headers.get('server-timing') ?? '',
        });
      let text = '';
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      for (let chunk = await reader?.read(); chunk && !chunk.done; chunk = await reader?.read()) {
        text += chunk.value;
        show(text);
      }
      show(pretty(text));
      if (!response.ok && fields !== null) setFault(faultIn(fields, messageIn(text)));
      if (mode === 'async' && response.status === 202) await poll(text, ends.signal, show);
    } catch (problem) {
      if (!ends.signal.aborted) setError(messageOf(problem));
    }
    setBusy(false);
  };
  return (
    <>
      <Panel title="Call">
        <form
          class="form"
          onSubmit={event => {
            event.preventDefault();
            void send();
          }}
        >
          <div class="grid two">
            {fields !== null && isForm ? (
              <EventForm
                key={schemaText}
                parts={fields}
                body={body}
                fault={fault}
                onBody={changed => {
                  setBody(changed);
                  setFault(null);
                }}
              />
            ) : (
              <Input label="Body" value={body} onInput={setBody} lines={8} hint="JSON." />
            )}
            <Input label="Headers" value={headers} onInput={setHeaders} lines={8} hint="Name: value, one per line." />
          </div>
          <div class="actions">
            {fields === null ? null : (
              <Input
                label="Event as"
                value={isForm ? 'form' : 'JSON'}
                onInput={value => {
                  setForm(value === 'form');
                  if (value === 'form') setBody(completed(fields, body));
                }}
                options={['form', 'JSON']}
              />
            )}
            {isFunction ? (
              <Input label="How" value={mode} onInput={value => setMode(value as CallMode)} options={CALL_MODES} />
            ) : null}
            <button type="submit" class="main" disabled={isBusy}>
              {isBusy ? 'Calling …' : 'Send'}
            </button>
            {isBusy ? (
              <button type="button" onClick={() => controller.current?.abort()}>
                Stop
              </button>
            ) : null}
          </div>
        </form>
        <Failure text={error} />
        <CopyCall source={{ path, target, body, headers: headersIn(headers), mode }} />
      </Panel>
      {result === null ? null : (
        <Panel title="Answer">
          <p role="status">
            <Status text={result.status < 300 ? 'ok' : 'failed'} /> {result.status} after {short(result.ms, ' ms')}
          </p>
          <Waterfall timing={result.timing} totalMs={result.ms} />
          <Text text={result.text} label="Body of the answer" />
          <Fields rows={result.headers} />
        </Panel>
      )}
    </>
  );
}

/** Returns the body with the first values of fields that it lacks. */
function completed(fields: readonly SchemaPart[] | null, body: string): string {
  return fields === null ? body : bodyOf(fields, textsOf(fields, body), body);
}

async function poll(text: string, signal: AbortSignal, show: (text: string) => void): Promise<void> {
  const { requestId } = JSON.parse(text) as { readonly requestId: string };
  while (!signal.aborted) {
    const result = (await call('getAsyncResult', { params: { id: requestId }, signal })) as {
      readonly status?: string;
    };
    show(JSON.stringify(result, null, 2));
    if (result.status === 'completed' || result.status === 'failed') return;
    await new Promise(resolve => setTimeout(resolve, POLL_MS));
  }
}

/** Returns the message of an answer that reports a failure; `''`: it has none. */
function messageIn(text: string): string {
  try {
    const { message } = JSON.parse(text) as { readonly message?: unknown };
    return String(message ?? '');
  } catch {
    return '';
  }
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
