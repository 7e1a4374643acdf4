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
/** When supervisord is asked what became of a program that does not come. */
const LOOKS = { firstMs: 300, longestMs: ARRIVE_TIMEOUT_MS };

/** The layers of isolation as a shim found them; passed on to the next one as they are. */
export interface KnownLayers {
  readonly places: Readonly<Record<string, readonly [version: number, parent: string]>>;
}

/** What a shim's sandbox is. */
interface Ready {
  readonly isolation: readonly string[];
  readonly degraded: readonly string[];
  readonly privileged: boolean;
  /** Why there are no networks that reach out but the host's; null when there are. */
  readonly networkMissing: string | null;
  readonly layers: KnownLayers;
}

/** A sandbox without code, as a program of supervisord, that waits for its instance. */
export interface Shim {
  readonly program: string;
  /** Of its Python: `3.11`. */
  readonly version: string;
  readonly argv: readonly string[];
  readonly hello: ShimHello & Ready;
  readonly connection: FrameSocket;
  /** What it says next: the answer to a start. Null when it ends. */
  readonly reply: Promise<Record<string, unknown> | null>;
}

/** What all shims of a driver share. */
export interface ShimHost {
  readonly programs: Programs;
  /** Sandboxes and their sockets. */
  readonly runDir: string;
  readonly removals: Removals;
}

export interface ShimOptions extends ShimHost {
  readonly program: string;
  readonly version: string;
  /** The path of the interpreter. */
  readonly interpreter: string;
  readonly pythonDir: string;
  /** The server's data directory: not to be seen inside. */
  readonly dataDir: string;
  readonly disable: readonly string[];
  readonly network: NetworkOptions;
  /** The layers as they are known of the supervisord with this pid; null: of the last one. */
  readonly layersOf: (supervisorPid: number | null) => KnownLayers | null;
  readonly socket: ControlSocket;
}

/**
 * Has supervisord start a shim; returns when its sandbox is ready. Leaves nothing when it fails. Fails with `unavailable`,
 * `failed_precondition`, `deadline_exceeded` or `internal`.
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
    // Its parent may have ended before it could see to that: then it is nobody's child any more.
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

/** One that has no instance: it goes when nobody is at the other end. Returns when nothing of it is left. */
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
  // It removes both itself, unless it was killed.
  const places = Object.entries(layers?.places ?? {});
  const paths = Object.fromEntries(places.map(([controller, [, parent]]) => [controller, join(parent, program)]));
  await removeGroups({ paths, versions: {} });
  await removals.remove(join(runDir, 'spares', program));
}

/** Rejects when supervisord says that a program which was started does not run; looks ever more seldom, and as long as somebody may wait. */
async function failWhenItEnds(program: string, programs: Programs): Promise<never> {
  const until = Date.now() + ARRIVE_TIMEOUT_MS;
  for (let looks = 1; Date.now() < until; looks++) {
    await pause(backoffMs(LOOKS, looks));
    const info = await programs.info(program);
    if (info === null || (info.state !== 'RUNNING' && info.state !== 'STARTING')) {
      throw unavailable(`supervisord cannot run a program of ours: ${await whyItEnded(program, programs)}`);
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
