import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { WebSocket } from 'ws';
import type { AgentInstances } from '../../agents/contract.ts';
import { messageOf } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import type { Sent } from '../../core/parameter.ts';
import { receive, send, sendBinary } from '../../lib/socket-stream.ts';
import type { OpenExec, TerminalSize } from '../../sandbox/access.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { answerUpgradeRequired, CLOSE, close, keepAlive, SocketLives } from '../web-socket.ts';
import { TERMINAL_DOCS } from './docs.ts';
import { readOpenExec } from './parameters.ts';

interface Running {
  readonly exec: OpenExec;
  readonly hasTerminal: boolean;
  readonly signal: AbortSignal;
}

/** The first byte of an output message without a terminal, which names the stream. */
const STDOUT = Buffer.of(1);
const STDERR = Buffer.of(2);

/**
 * Adds the WebSocket `/api/agent/{instanceId}/exec`: a command with open streams, with or without a terminal.
 * `docs/guides/files-terminals-ports.md` describes its protocol.
 * The command starts before the handshake, so that failures are ordinary answers. It ends with the
 * connection.
 */
export function addTerminalRoute(app: FastifyInstance, instances: AgentInstances): void {
  const lives = new SocketLives(app);
  const running = new WeakMap<object, Running>();

  app.route<{ Params: { instanceId: string }; Querystring: Sent }>({
    method: 'GET',
    url: '/api/agent/:instanceId/exec',
    config: { access: 'write', longLived: true, livesWith: LIVES_WITH_AGENT, docs: TERMINAL_DOCS },
    exposeHeadRoute: false,
    preHandler: async (request, reply) => {
      if (!request.ws) return answerUpgradeRequired(reply);
      const wanted = readOpenExec(request.query);
      const { signal } = lives.open(request);
      const access = await instances.access(request.tenant, request.params.instanceId);
      const exec = await access.openExec(wanted, signal);
      // `serve` handles the failure. Until then this handler prevents an unhandled rejection.
      exec.ended.catch(() => undefined);
      signal.addEventListener('abort', () => exec.kill(), { once: true });
      running.set(request.raw, { exec, hasTerminal: wanted.terminal !== null, signal });
      return undefined;
    },
    handler: (_request, reply) => answerUpgradeRequired(reply),
    wsHandler: (socket, request) => {
      const found = running.get(request.raw);
      if (found) void serve(socket, request, found);
    },
  });
}

async function serve(socket: WebSocket, request: FastifyRequest, { exec, hasTerminal, signal }: Running) {
  const moved = keepAlive(socket, LIMITS.channelIdleMs);
  const { stdin, stdout, stderr } = exec;
  stdin.on('error', () => undefined);
  const controlled = { endInput: () => stdin.end(), resize: (size: TerminalSize) => exec.resize(size) };
  receive(socket, stdin, text => {
    const problem = obey(text, controlled);
    if (problem !== undefined) close(socket, CLOSE.policy, problem);
  });
  socket.on('message', moved);
  try {
    await Promise.all([
      sendBinary(socket, stdout, moved, hasTerminal ? null : STDOUT),
      sendBinary(socket, stderr, moved, hasTerminal ? null : STDERR),
    ]);
    await send(socket, JSON.stringify({ type: 'exit', returncode: await exec.ended }));
    close(socket, CLOSE.normal);
  } catch (error) {
    exec.kill();
    if (signal.aborted) return;
    request.failure = `the command was interrupted: ${messageOf(error)}`;
    close(socket, CLOSE.fault, messageOf(error));
  }
}

/** The part of a command that text messages control. */
interface Controlled {
  endInput(): void;
  resize(size: TerminalSize): void;
}

/** Executes a text message. Returns the problem of an invalid message, otherwise undefined. */
export function obey(text: string, command: Controlled): string | undefined {
  let message: { readonly type?: unknown; readonly cols?: unknown; readonly rows?: unknown } | null;
  try {
    message = JSON.parse(text);
  } catch {
    return 'a text message must be JSON';
  }
  if (message?.type === 'stdin-end') {
    command.endInput();
    return undefined;
  }
  if (message?.type !== 'resize') return 'the type of a text message must be resize or stdin-end';
  const size = sizeOf(message.cols, message.rows);
  if (size === undefined) return `resize: cols and rows must be integers from 1 to ${MAX_SIZE}`;
  command.resize(size);
  return undefined;
}

const MAX_SIZE = 65_535;

function sizeOf(columns: unknown, rows: unknown): TerminalSize | undefined {
  const isSize = (value: unknown): value is number =>
    Number.isInteger(value) && Number(value) >= 1 && Number(value) <= MAX_SIZE;
  return isSize(columns) && isSize(rows) ? { columns, rows } : undefined;
}
