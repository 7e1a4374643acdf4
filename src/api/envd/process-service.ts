import { constants } from 'node:os';
import { ServiceError } from '../../core/error.ts';
import type { JsonObject } from '../../core/json.ts';
import type {
  ProcessEnd,
  ProcessInfo,
  ProcessOutput,
  ProcessSelector,
  ProcessStream,
  StartProcess,
  TerminalSize,
} from '../../sandbox/access.ts';
import type { Call, Procedures } from './call.ts';
import { ConnectError } from './errors.ts';
import { bytesOf, flagOf, isPresent, messageOf, numberOf, textMapOf, textOf, textsOf } from './fields.ts';
import { clientLeft, type MessageStream } from './message-stream.ts';

/** The procedures of `process.Process`. */
export const PROCESS_PROCEDURES: Procedures = {
  'process.Process/Start': { kind: 'server-stream', hasOwnTimeout: true, run: start },
  'process.Process/Connect': { kind: 'server-stream', run: connect },
  'process.Process/List': { kind: 'unary', run: list },
  'process.Process/SendInput': {
    kind: 'unary',
    run: (message, call) => sendInput(selectorOf(message), messageOf(message, 'input'), call),
  },
  'process.Process/StreamInput': { kind: 'client-stream', run: streamInput },
  'process.Process/CloseStdin': { kind: 'unary', run: closeStdin },
  'process.Process/SendSignal': { kind: 'unary', run: sendSignal },
  'process.Process/Update': { kind: 'unary', run: update },
};

const MAX_TERMINAL_SIZE = 65_535;
const KEEP_ALIVE = { event: { keepalive: {} } };
const FIELDS = { stdout: 'stdout', stderr: 'stderr', terminal: 'pty' } as const;

async function start(message: JsonObject, call: Call, stream: MessageStream): Promise<void> {
  await pass(await call.access.startProcess(readStart(message, call), call.signal), call, stream);
}

async function connect(message: JsonObject, call: Call, stream: MessageStream): Promise<void> {
  await pass(await call.access.attachProcess(selectorOf(message), call.signal), call, stream);
}

function readStart(message: JsonObject, { user, workingDir, timeoutMs }: Call): StartProcess {
  const config = messageOf(message, 'process');
  const program = textOf(config, 'cmd');
  if (program === '') throw new ConnectError('invalid_argument', 'process.cmd must not be empty');
  return {
    argv: [program, ...textsOf(config, 'args')],
    workingDir: textOf(config, 'cwd') || workingDir,
    env: textMapOf(config, 'envs'),
    user,
    terminal: isPresent(message, 'pty') ? sizeOf(messageOf(message, 'pty')) : null,
    // Old clients do not send the field, and expect an open input.
    stdin: flagOf(message, 'stdin', true),
    tag: isPresent(message, 'tag') ? textOf(message, 'tag') : undefined,
    timeLimitMs: timeoutMs,
  };
}

/**
 * Sends the events of a process until its end, or until the client disconnects; the process then continues.
 */
async function pass(process: ProcessStream, call: Call, stream: MessageStream): Promise<void> {
  // The loop below reports the failure. Until then, this handler prevents an unhandled rejection.
  process.ended.catch(() => undefined);
  const close = () => process.close();
  call.signal.addEventListener('abort', close, { once: true });
  try {
    if (call.signal.aborted) throw clientLeft();
    await stream.send({ event: { start: { pid: process.pid } } });
    stream.keepAliveWith(KEEP_ALIVE);
    for await (const output of process.output) await stream.send(toDataEvent(output));
    const end = await process.ended;
    if (end.timedOut) throw new ConnectError('deadline_exceeded', 'the process was killed at its time limit');
    await refuseEndOfSandbox(end, call);
    await stream.send({ event: { end: toEndEvent(end) } });
  } finally {
    call.signal.removeEventListener('abort', close);
    process.close();
  }
}

/**
 * Fails with `unavailable` if the sandbox ends. The end of a sandbox kills its processes, and a client must
 * see a broken connection then, not the end of the process.
 */
async function refuseEndOfSandbox({ signal }: ProcessEnd, call: Call): Promise<void> {
  if (signal !== 'SIGKILL' && signal !== 'SIGTERM') return;
  try {
    await call.access.listProcesses(call.signal);
  } catch (cause) {
    throw new ServiceError('unavailable', 'the sandbox ended', { cause });
  }
}

function toDataEvent({ kind, data }: ProcessOutput): object {
  return { event: { data: { [FIELDS[kind]]: data.toString('base64') } } };
}

function toEndEvent({ code, signal }: ProcessEnd): object {
  if (code === null) {
    const status = `signal: ${SIGNAL_TEXTS[signal ?? ''] ?? numberedSignal(signal)}`;
    return { exitCode: -1, exited: false, status, error: status };
  }
  const status = `exit status ${code}`;
  return { exitCode: code, exited: true, status, ...(code === 0 ? {} : { error: status }) };
}

/** Texts of signals that clients of E2B know. */
const SIGNAL_TEXTS: Readonly<Record<string, string>> = {
  SIGABRT: 'aborted',
  SIGALRM: 'alarm clock',
  SIGBUS: 'bus error',
  SIGFPE: 'floating point exception',
  SIGHUP: 'hangup',
  SIGILL: 'illegal instruction',
  SIGINT: 'interrupt',
  SIGKILL: 'killed',
  SIGPIPE: 'broken pipe',
  SIGQUIT: 'quit',
  SIGSEGV: 'segmentation fault',
  SIGTERM: 'terminated',
  SIGTRAP: 'trace/breakpoint trap',
};

function numberedSignal(name: string | null): string {
  const number = (constants.signals as Readonly<Record<string, number>>)[name ?? ''];
  return number === undefined ? (name ?? 'unknown') : `signal ${number}`;
}

async function list(_message: JsonObject, { access, signal }: Call): Promise<object> {
  return { processes: (await access.listProcesses(signal)).map(toProcess) };
}

function toProcess({ argv, env, workingDir, pid, tag }: ProcessInfo): object {
  const [cmd = '', ...args] = argv;
  const config = { cmd, args, envs: env, ...(workingDir === '' ? {} : { cwd: workingDir }) };
  return { config, pid, ...(tag === null ? {} : { tag }) };
}

async function sendInput(process: ProcessSelector, input: JsonObject, call: Call): Promise<object> {
  const isTerminal = isPresent(input, 'pty');
  if (!isTerminal && !isPresent(input, 'stdin')) {
    throw new ConnectError('invalid_argument', 'input must have stdin or pty');
  }
  const data = bytesOf(input, isTerminal ? 'pty' : 'stdin');
  await withInternal(call.access.writeInput(process, data, isTerminal, call.signal));
  return {};
}

async function streamInput(messages: AsyncIterable<JsonObject>, call: Call): Promise<object> {
  let process: ProcessSelector | undefined;
  for await (const message of messages) {
    if (isPresent(message, 'start')) process = selectorOf(messageOf(message, 'start'));
    else if (isPresent(message, 'data')) {
      if (process === undefined) throw new ConnectError('invalid_argument', 'the first message must be start');
      await sendInput(process, messageOf(messageOf(message, 'data'), 'input'), call);
    }
  }
  return {};
}

async function closeStdin(message: JsonObject, { access, signal }: Call): Promise<object> {
  await withInternal(access.closeInput(selectorOf(message), signal));
  return {};
}

const SIGNALS: ReadonlyMap<unknown, NodeJS.Signals> = new Map<unknown, NodeJS.Signals>([
  ['SIGNAL_SIGKILL', 'SIGKILL'],
  [9, 'SIGKILL'],
  ['SIGNAL_SIGTERM', 'SIGTERM'],
  [15, 'SIGTERM'],
]);

async function sendSignal(message: JsonObject, { access, signal }: Call): Promise<object> {
  const name = SIGNALS.get(message.signal);
  if (name === undefined) {
    throw new ConnectError('unimplemented', 'signal must be SIGNAL_SIGKILL or SIGNAL_SIGTERM');
  }
  await access.signalProcess(selectorOf(message), name, signal);
  return {};
}

async function update(message: JsonObject, { access, signal }: Call): Promise<object> {
  const process = selectorOf(message);
  if (isPresent(message, 'pty')) {
    await withInternal(access.resizeProcess(process, sizeOf(messageOf(message, 'pty')), signal));
  }
  return {};
}

/** Reports an input that the process lacks as `internal`, as clients of E2B expect. */
async function withInternal(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code !== 'failed_precondition') throw error;
    throw new ConnectError('internal', error.message, error);
  }
}

function selectorOf(message: JsonObject): ProcessSelector {
  const selector = messageOf(message, 'process');
  if (isPresent(selector, 'tag')) return { tag: textOf(selector, 'tag') };
  if (isPresent(selector, 'pid')) return numberOf(selector, 'pid');
  throw new ConnectError('invalid_argument', 'process must have pid or tag');
}

function sizeOf(terminal: JsonObject): TerminalSize {
  const size = messageOf(terminal, 'size');
  const columns = numberOf(size, 'cols');
  const rows = numberOf(size, 'rows');
  if (Math.min(columns, rows) < 1 || Math.max(columns, rows) > MAX_TERMINAL_SIZE) {
    throw new ConnectError('invalid_argument', `cols and rows must be from 1 to ${MAX_TERMINAL_SIZE}`);
  }
  return { columns, rows };
}
