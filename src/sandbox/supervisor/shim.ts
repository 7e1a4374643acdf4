import { join } from 'node:path';
import { failedPrecondition, internal, unavailable } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { backoffMs, pause } from '../../lib/backoff.ts';
import { within } from '../../lib/deadline.ts';
import type { Removals } from '../../lib/removals.ts';
import { removeGroups } from '../host/control-groups.ts';
import type { FrameSocket } from '../host/frame-socket.ts';
import type { NetworkOptions } from '../host/network.ts';
import type { Arrival, ControlSocket, ShimHello } from './control-socket.ts';
import type { Programs } from './programs.ts';

const ARRIVE_TIMEOUT_MS = 15_000;
const READY_TIMEOUT_MS = 15_000;
/** Intervals at which supervisord is queried about a program that has not connected. */
const LOOKS = { firstMs: 300, longestMs: ARRIVE_TIMEOUT_MS };

/** The isolation layers that a shim has detected. The next shim gets them unchanged. */
export interface KnownLayers {
  readonly places: Readonly<Record<string, readonly [version: number, parent: string]>>;
}

/** The message with which a shim reports that its sandbox is ready. */
interface Ready {
  readonly isolation: readonly string[];
  readonly degraded: readonly string[];
  readonly privileged: boolean;
  /** The reason there are no own networks with access to the outside; null when there are. */
  readonly networkMissing: string | null;
  readonly layers: KnownLayers;
}

/** A sandbox without code that waits for its instance, as a program of supervisord. */
export interface Shim {
  readonly program: string;
  /** Version of its Python, for example `3.11`. */
  readonly version: string;
  readonly argv: readonly string[];
  readonly hello: ShimHello & Ready;
  readonly connection: FrameSocket;
  /** Resolves with the next message: the answer to a start. Null when the shim ends. */
  readonly reply: Promise<Record<string, unknown> | null>;
}

/** Parts that all shims of a driver share. */
export interface ShimHost {
  readonly programs: Programs;
  /** The directory of sandboxes and their sockets. */
  readonly runDir: string;
  readonly removals: Removals;
}

export interface ShimOptions extends ShimHost {
  readonly program: string;
  readonly version: string;
  /** The path of the interpreter. */
  readonly interpreter: string;
  readonly pythonDir: string;
  /** The server's data directory, which must be invisible inside. */
  readonly dataDir: string;
  readonly disable: readonly string[];
  readonly network: NetworkOptions;
  /** Returns the layers detected under the supervisord with this pid; null: under the last one. */
  readonly layersOf: (supervisorPid: number | null) => KnownLayers | null;
  readonly socket: ControlSocket;
}

/**
 * Makes supervisord start a shim, and returns when the shim's sandbox is ready. Removes everything on
 * failure.
 * Fails with `unavailable`, `failed_precondition`, `deadline_exceeded` or `internal`.
 */
export async function launchShim(options: ShimOptions): Promise<Shim> {
  const { program, programs, socket, runDir, dataDir, network } = options;
  const argv = [
    options.interpreter,
    '-I',
    join(options.pythonDir, 'rookery_zygote', 'supervised_main.py'),
    socket.path,
    program,
  ];
  const arriving = socket.expect(program);
  let connection: FrameSocket | undefined;
  try {
    const parent = await programs.launch(program, argv);
    const arrival = await within(
      Promise.race([arriving, failWhenItEnds(program, programs)]),
      ARRIVE_TIMEOUT_MS,
      `the program ${program} that supervisord has started does not reach this service: supervisord must run on this machine, ` +
        'outside of containers',
    );
    connection = arrival.connection;
    checkUser(arrival);
    // supervisord may end before the shim requests a signal on its parent's end. The shim is an orphan then.
    if (arrival.hello.supervisorPid !== parent) throw unavailable('supervisord ended while it started a program');
    connection.send({
      name: program,
      runDir,
      dataDir,
      disable: options.disable,
      network: { range: network.range, always: network.use === 'own', setForwarding: network.setForwarding },
      hostPaths: [options.pythonDir],
      logBytes: LIMITS.logFileBytes,
      logFiles: LIMITS.logFiles,
      layers: options.layersOf(arrival.hello.supervisorPid),
    });
    const ready = await within(connection.nextMessage(), READY_TIMEOUT_MS, 'a supervised sandbox was not made in time');
    if (ready === null) throw unavailable(`a supervised program ended: ${await whyItEnded(program, programs)}`);
    if (typeof ready.failed === 'string') throw internal(ready.failed);
    const hello = { ...arrival.hello, ...(ready as unknown as Ready) };
    return { program, version: options.version, argv, hello, connection, reply: connection.nextMessage() };
  } catch (error) {
    connection?.close();
    await removeTraces(program, options, options.layersOf(null)).catch(() => undefined);
    throw error;
  } finally {
    socket.forget(program);
  }
}

/**
 * Ends a shim without an instance, which exits when its connection closes. Returns when all of it is removed.
 */
export async function dismissShim(shim: Shim, host: ShimHost): Promise<void> {
  shim.connection.close();
  await removeTraces(shim.program, host, shim.hello.layers);
}

async function removeTraces(
  program: string,
  { programs, runDir, removals }: ShimHost,
  layers: KnownLayers | null,
): Promise<void> {
  await programs.remove(program);
  // The shim removes both itself, unless it was killed.
  const places = Object.entries(layers?.places ?? {});
  const paths = Object.fromEntries(places.map(([controller, [, parent]]) => [controller, join(parent, program)]));
  await removeGroups({ paths, versions: {} });
  await removals.remove(join(runDir, 'spares', program));
}

/**
 * Rejects when supervisord reports that a started program does not run.
 * Queries at growing intervals for up to `ARRIVE_TIMEOUT_MS`.
 */
async function failWhenItEnds(program: string, programs: Programs): Promise<never> {
  const until = Date.now() + ARRIVE_TIMEOUT_MS;
  for (let looks = 1; Date.now() < until; looks++) {
    await pause(backoffMs(LOOKS, looks));
    const info = await programs.info(program);
    if (info === null || (info.state !== 'RUNNING' && info.state !== 'STARTING')) {
      throw unavailable(`supervisord cannot run a program of Rookery: ${await whyItEnded(program, programs)}`);
    }
  }
  throw unavailable(`the program ${program} does not come`);
}

async function whyItEnded(program: string, programs: Programs): Promise<string> {
  const info = await programs.info(program).catch(() => null);
  if (info === null) return 'supervisord does not know it any more';
  const words = await programs.lastWords(program);
  const how = info.spawnError === '' ? `${info.state}, exit status ${info.exitStatus}` : info.spawnError;
  return words === '' ? how : `${how}: ${words}`;
}

function checkUser({ hello }: Arrival): void {
  const own = process.geteuid?.() ?? hello.uid;
  if (hello.uid === own) return;
  throw failedPrecondition(
    `supervisord runs programs as uid ${hello.uid} and this service runs as uid ${own}: they must be the same user`,
  );
}
