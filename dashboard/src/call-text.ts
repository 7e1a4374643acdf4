/** Texts that make a call of the dashboard elsewhere. They name the place of the token, never its value. */

export const CALL_LANGUAGES = ['curl', 'TypeScript', 'Python', 'CLI'] as const;
export type CallLanguage = (typeof CALL_LANGUAGES)[number];
export const CALL_MODES = ['answer', 'stream', 'async'] as const;
export type CallMode = (typeof CALL_MODES)[number];

/** The called agent or version of a function. */
export type CallTarget =
  | { readonly kind: 'agent'; readonly id: string }
  | { readonly kind: 'function'; readonly urn: string; readonly name: string; readonly version: string };

export interface CallSource {
  /** Scheme, host and port of the service. */
  readonly origin: string;
  readonly path: string;
  readonly target: CallTarget;
  /** The body as typed. */
  readonly body: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly mode: CallMode;
  readonly needsToken: boolean;
  /** Tenant of the request; null: the one of the token, or the default. */
  readonly tenant: string | null;
}

/** Headers that carry a token. */
const TOKEN_HEADERS: ReadonlySet<string> = new Set(['authorization', 'x-auth', 'cookie']);

/** Splits a text into headers, one `Name: value` per line. Ignores lines without a colon. */
export function headersIn(text: string): readonly (readonly [name: string, value: string])[] {
  return text
    .split('\n')
    .filter(line => line.includes(':'))
    .map(line => [line.slice(0, line.indexOf(':')).trim(), line.slice(line.indexOf(':') + 1).trim()] as const);
}

/** Returns the text in a language, or why the language has none. */
export function callText(
  language: CallLanguage,
  source: CallSource,
): { readonly text: string } | { readonly problem: string } {
  if (language === 'curl') return { text: curlOf(source) };
  if (!isJson(source.body)) return { problem: 'The body is not JSON. Only curl sends it as typed.' };
  if (language === 'Python' && source.body.trim() === 'null')
    return { problem: 'The Python client sends {} for None. Use curl.' };
  const names = OPTIONS[language][source.target.kind];
  const sent = source.headers.map(([name, value]) => [name.toLowerCase(), value] as const);
  const options = sent.filter(([name, value]) => !TOKEN_HEADERS.has(name) && IMPLIED[name] !== value);
  const unknown = options.find(([name, value]) => {
    const hasOption = names[name] !== undefined && !(isBound(name) && !/^\d+$/.test(value));
    return !hasOption || (language === 'Python' && name === TRACE && source.mode !== 'answer');
  });
  if (unknown !== undefined) return { problem: `${language} has no option for the header ${unknown[0]}. Use curl.` };
  const given = options.map(([name, value]) => [names[name] as string, value, isBound(name)] as const);
  return { text: { TypeScript: typescriptOf, Python: pythonOf, CLI: commandOf }[language](source, given) };
}

const TRACE = 'x-trace-id';
const TIMEOUT = 'x-invoke-timeout-ms';
const isBound = (name: string) => name === TIMEOUT;
/** Headers that the clients and the command line send themselves. */
const IMPLIED: Readonly<Record<string, string>> = { 'content-type': 'application/json' };
const OF_FUNCTION = { 'x-instance-session': 'session', 'x-instance-label': 'label' };

/** Options that send a header, by language and target. */
const OPTIONS: Readonly<
  Record<Exclude<CallLanguage, 'curl'>, Record<CallTarget['kind'], Readonly<Record<string, string>>>>
> = {
  TypeScript: {
    agent: { [TRACE]: 'traceId', [TIMEOUT]: 'runMs' },
    function: { [TRACE]: 'traceId', ...OF_FUNCTION },
  },
  Python: {
    agent: { [TRACE]: 'trace_id', [TIMEOUT]: 'run_ms' },
    function: { [TRACE]: 'trace_id', ...OF_FUNCTION },
  },
  CLI: {
    agent: { [TRACE]: '--trace-id', [TIMEOUT]: '--timeout' },
    function: { [TRACE]: '--trace-id', 'x-instance-session': '--session', 'x-instance-label': '--label' },
  },
};

type Given = readonly (readonly [option: string, value: string, isMs: boolean])[];

function curlOf({ origin, path, body, headers, mode, needsToken, tenant }: CallSource): string {
  const own: (readonly [string, string])[] = [['Content-Type', 'application/json']];
  if (tenant !== null) own.push(['X-Tenant-Id', tenant]);
  const typed = headers.filter(([name]) => !TOKEN_HEADERS.has(name.toLowerCase()));
  // As in the page, the selected mode overrides a typed header.
  const ofMode: readonly (readonly [string, string])[] =
    mode === 'stream' ? [['Accept', 'text/event-stream']] : mode === 'async' ? [['X-Invoke-Type', 'async']] : [];
  const sent = new Map([...own, ...typed, ...ofMode].map(([name, value]) => [name.toLowerCase(), [name, value]]));
  return [
    `curl -sS${mode === 'stream' ? 'N' : ''} ${quoted(`${origin}${path}`)}`,
    ...(needsToken ? ['-H "Authorization: Bearer $ROOKERY_TOKEN"'] : []),
    ...[...sent.values()].map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
    `--data-raw ${quoted(body)}`,
  ].join(' \\\n  ');
}

function commandOf({ origin, target, body, mode, needsToken, tenant }: CallSource, given: Given): string {
  const what = target.kind === 'agent' ? `agent invoke ${target.id}` : `function invoke ${quoted(target.urn)}`;
  return [
    `rookery ${what}`,
    `--address ${quoted(origin)}`,
    ...(needsToken ? ['--token "$ROOKERY_TOKEN"'] : []),
    ...(tenant === null ? [] : [`--tenant ${quoted(tenant)}`]),
    ...(mode === 'stream' ? ['--stream'] : mode === 'async' ? ['--async --wait'] : []),
    ...given.map(([option, value, isMs]) => `${option} ${quoted(isMs ? `${value}ms` : value)}`),
    `--data ${quoted(body)}`,
  ].join(' \\\n  ');
}

function typescriptOf({ origin, target, body, mode, needsToken, tenant }: CallSource, given: Given): string {
  const connection = [
    `url: ${JSON.stringify(origin)}`,
    ...(needsToken ? ['token: process.env.ROOKERY_TOKEN'] : []),
    ...(tenant === null ? [] : [`tenant: ${JSON.stringify(tenant)}`]),
  ].join(', ');
  const options = given.map(([name, value, isMs]) => `${name}: ${isMs ? value : JSON.stringify(value)}`).join(', ');
  const sent = `${body.trim()}${options === '' ? '' : `, { ${options} }`}`;
  const [name, found] =
    target.kind === 'agent'
      ? ['agent', `agents.get(${JSON.stringify(target.id)})`]
      : ['fn', `functions.get(${JSON.stringify(target.name)}, { version: ${JSON.stringify(target.version)} })`];
  const call = {
    answer: [`console.log(await ${name}.invoke(${sent}));`],
    stream: [`for await (const piece of ${name}.stream(${sent})) console.log(piece);`],
    async: [`const call = await ${name}.start(${sent});`, 'console.log(await call.result());'],
  }[mode];
  return [
    "import { Rookery } from '@rookery/client';",
    '',
    `const rookery = new Rookery({ ${connection} });`,
    `const ${name} = await rookery.${found};`,
    ...call,
    '',
  ].join('\n');
}

function pythonOf({ origin, target, body, mode, needsToken, tenant }: CallSource, given: Given): string {
  const connection = [
    JSON.stringify(origin),
    ...(needsToken ? ['token=os.environ["ROOKERY_TOKEN"]'] : []),
    ...(tenant === null ? [] : [`tenant=${JSON.stringify(tenant)}`]),
  ].join(', ');
  const options = given.map(([name, value, isMs]) => `, ${name}=${isMs ? value : JSON.stringify(value)}`).join('');
  const sent = `${pythonLiteral(body.trim())}${options}`;
  const [name, found] =
    target.kind === 'agent'
      ? ['agent', `agents.get(${JSON.stringify(target.id)})`]
      : ['fn', `functions.get(${JSON.stringify(target.name)}, ${JSON.stringify(target.version)})`];
  const call = {
    answer: [`print(${name}.invoke(${sent}))`],
    stream: [`for piece in ${name}.stream(${sent}):`, '    print(piece)'],
    async: [`call = ${name}.start(${sent})`, 'print(call.result())'],
  }[mode];
  return [
    ...(needsToken ? ['import os', ''] : []),
    'from rookery import Rookery',
    '',
    `with Rookery(${connection}) as rookery:`,
    `    ${name} = rookery.${found}`,
    ...call.map(line => `    ${line}`),
    '',
  ].join('\n');
}

const PYTHON_WORDS: Readonly<Record<string, string>> = { true: 'True', false: 'False', null: 'None' };

/** Returns JSON as an expression of Python, with its line breaks. */
function pythonLiteral(json: string): string {
  // Python does not join the two escapes of a character outside the basic plane.
  return json.replace(
    /"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g,
    token => PYTHON_WORDS[token] ?? JSON.stringify(JSON.parse(token)),
  );
}

/** Returns a word of a POSIX shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
