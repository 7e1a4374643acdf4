import { constants } from 'node:os';
import { Writable } from 'node:stream';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { WebSocket } from 'ws';
import type { AgentInstances } from '../../agents/contract.ts';
import { messageOf } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { PROCESS, PROCESS_SIGNAL, readProcess, readProcessSignal } from '../../core/process.ts';
import { answerController } from '../../http/access/caller.ts';
import { withWarnings } from '../../http/answer.ts';
import { readRequest } from '../../http/request.ts';
import { receive, send } from '../../lib/socket-stream.ts';
import type {
  ProcessEnd,
  ProcessInfo,
  ProcessOutput,
  ProcessSelector,
  ProcessStream,
  SandboxAccess,
  TerminalSize,
} from '../../sandbox/access.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { answerUpgradeRequired, CLOSE, close, keepAlive, SocketLives } from '../web-socket.ts';
import { PROCESS_DOCS } from './process-docs.ts';
import { obey } from './terminal.ts';

interface ById {
  Params: { instanceId: string };
}

interface ByProcess {
  Params: { instanceId: string; process: string };
}

/** A process to which a WebSocket listens. */
interface Attached {
  readonly access: SandboxAccess;
  readonly stream: ProcessStream;
  readonly hasTerminal: boolean;
  readonly signal: AbortSignal;
}

/** The first byte of a message of output. A terminal has only the first kind. */
const MARKS: Readonly<Record<ProcessOutput['kind'], Buffer>> = {
  stdout: Buffer.of(1),
  terminal: Buffer.of(1),
  stderr: Buffer.of(2),
};

/** Adds the routes of processes that outlive their connections: `/api/agent/{instanceId}/processes`. */
export function addProcessRoutes(app: FastifyInstance, instances: AgentInstances): void {
  const processes = '/api/agent/:instanceId/processes';
  const accessOf = (request: FastifyRequest<ById>) => instances.access(request.tenant, request.params.instanceId);

  app.post<ById>(
    processes,
    { config: { access: 'write', livesWith: LIVES_WITH_AGENT, docs: PROCESS_DOCS.start } },
    async (request, reply) => {
      const sent = readRequest(request, PROCESS, readProcess);
      const access = await accessOf(request);
      const started = {
        argv: sent.command,
        workingDir: sent.working_dir,
        env: sent.env,
        user: sent.user,
        tag: sent.tag,
        stdin: sent.stdin,
        terminal: sent.tty ? { columns: sent.cols, rows: sent.rows } : null,
        timeLimitMs: Math.ceil(sent.timeout * 1000),
      };
      const stream = await access.startProcess(started, answerController(reply.raw).signal);
      stream.close();
      return withWarnings({ code: 200, pid: stream.pid }, request.warnings);
    },
  );

  app.get<ById>(
    processes,
    { config: { access: 'read', livesWith: LIVES_WITH_AGENT, docs: PROCESS_DOCS.list } },
    async (request, reply) => {
      const access = await accessOf(request);
      const running = await access.listProcesses(answerController(reply.raw).signal);
      return { code: 200, processes: running.map(processRecord) };
    },
  );

  app.post<ByProcess>(
    `${processes}/:process/signal`,
    { config: { access: 'write', livesWith: LIVES_WITH_AGENT, docs: PROCESS_DOCS.signal } },
    async (request, reply) => {
      const { signal: name } = readRequest(request, PROCESS_SIGNAL, readProcessSignal);
      const access = await instances.access(request.tenant, request.params.instanceId);
      const { signal } = answerController(reply.raw);
      await access.signalProcess(selectorOf(request.params.process), name as NodeJS.Signals, signal);
      return withWarnings({ code: 200 }, request.warnings);
    },
  );

  addAttachRoute(app, instances, `${processes}/:process/attach`);
}

function addAttachRoute(app: FastifyInstance, instances: AgentInstances, url: string): void {
  const lives = new SocketLives(app);
  const attached = new WeakMap<object, Attached>();

  app.route<ByProcess>({
    method: 'GET',
    url,
    config: { access: 'write', longLived: true, livesWith: LIVES_WITH_AGENT, docs: PROCESS_DOCS.attach },
    exposeHeadRoute: false,
    preHandler: async (request, reply) => {
      if (!request.ws) return answerUpgradeRequired(reply);
      const { signal } = lives.open(request);
      const access = await instances.access(request.tenant, request.params.instanceId);
      const running = await access.listProcesses(signal);
      const stream = await access.attachProcess(selectorOf(request.params.process), signal);
      signal.addEventListener('abort', () => stream.close(), { once: true });
      const hasTerminal = running.some(({ pid, terminal }) => pid === stream.pid && terminal);
      attached.set(request.raw, { access, stream, hasTerminal, signal });
      return undefined;
    },
    handler: (_request, reply) => answerUpgradeRequired(reply),
    wsHandler: (socket, request) => {
      const found = attached.get(request.raw);
      if (found) void serve(socket, request, found);
    },
  });
}

function selectorOf(process: string): ProcessSelector {
  return /^[0-9]{1,10}$/.test(process) ? Number(process) : { tag: process };
}

function processRecord({ pid, argv, workingDir, user, tag, terminal, startedAtMs }: ProcessInfo) {
  const startedAt = new Date(startedAtMs).toISOString();
  return { pid, command: argv, working_dir: workingDir, user, tag, tty: terminal, started_at: startedAt };
}

async function serve(socket: WebSocket, request: FastifyRequest, attached: Attached): Promise<void> {
  const { access, stream, hasTerminal, signal } = attached;
  const moved = keepAlive(socket, LIMITS.channelIdleMs);
  const ignore = () => undefined;
  const input = new Writable({
    // A process without an input, or one that has ended, drops it.
    write(chunk: Buffer, _encoding, done) {
      access.writeInput(stream.pid, chunk, hasTerminal, signal).then(
        () => done(),
        () => done(),
      );
    },
    final(done) {
      if (!hasTerminal) void access.closeInput(stream.pid, signal).catch(ignore);
      done();
    },
  });
  const controlled = {
    endInput: () => input.end(),
    resize: (size: TerminalSize) => {
      if (hasTerminal) void access.resizeProcess(stream.pid, size, signal).catch(ignore);
    },
  };
  receive(socket, input, text => {
    const problem = obey(text, controlled);
    if (problem !== undefined) close(socket, CLOSE.policy, problem);
  });
  socket.on('message', moved);
  try {
    for await (const { kind, data } of stream.output) {
      await send(socket, Buffer.concat([MARKS[kind], data]));
      moved();
    }
    await send(socket, JSON.stringify(exitOf(await stream.ended)));
    close(socket, CLOSE.normal);
  } catch (error) {
    stream.close();
    if (signal.aborted) return;
    request.failure = `the process is not heard any more: ${messageOf(error)}`;
    close(socket, CLOSE.fault, messageOf(error));
  }
}

function exitOf({ code, signal, timedOut }: ProcessEnd): object {
  const { signals } = constants;
  const number = signal === null ? 0 : (signals[signal as NodeJS.Signals] ?? 0);
  return { type: 'exit', returncode: code ?? 128 + number, signal, timed_out: timedOut };
}
