import { setTimeout as delay } from 'node:timers/promises';
import { loadConfig } from '../../config/env.ts';
import { findContainers } from '../../sandbox/docker/machine-containers.ts';
import { thawProcess } from '../../sandbox/host/freezer.ts';
import { findProcesses, type MachineProcess, treeOf } from '../../sandbox/host/machine-sandboxes.ts';
import { CliError, EXIT } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { counted } from '../shared/units.ts';

/** Time for a service to stop: its default time for running calls, and a margin. */
const SERVICES_MS = 60_000;
const SANDBOXES_MS = 15_000;
const LOOK_MS = 100;

/** The part of the machine that `stopAll` uses; tests replace it. */
export interface Machine {
  find(): Promise<readonly MachineProcess[]>;
  tree(pid: number): Promise<readonly number[]>;
  /** Continues the paused sandbox of an init: frozen processes do not end. */
  thaw(pid: number): Promise<void>;
  signal(pid: number, signal: 'SIGTERM' | 'SIGKILL'): void;
  containers: typeof findContainers;
}

const THIS_MACHINE: Machine = {
  find: () => findProcesses(),
  tree: pid => treeOf(pid),
  thaw: pid => thawProcess(pid),
  signal: (pid, signal) => process.kill(pid, signal),
  containers: findContainers,
};

/**
 * Ends every service and sandbox of Rookery that this user may end on this machine. Returns the exit code.
 */
export async function stopAll(io: Io, machine: Machine = THIS_MACHINE): Promise<number> {
  const failures: string[] = [];
  const refused = new Set<number>();
  const send = (pid: number, signal: 'SIGTERM' | 'SIGKILL') => {
    try {
      machine.signal(pid, signal);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ESRCH') return;
      refused.add(pid);
      failures.push(`process ${pid} could not be ended: ${code}`);
    }
  };
  const found = await machine.find();
  const services = found.filter(({ kind }) => kind === 'service');
  for (const { pid } of services) send(pid, 'SIGTERM');
  const isTold = ({ pid }: MachineProcess) => !refused.has(pid);
  await untilGone(machine, services.filter(isTold), SERVICES_MS);
  // A service may have started sandboxes until it ended.
  const sandboxes = (await machine.find()).filter(({ kind }) => kind !== 'service');
  for (const { pid } of sandboxes.filter(({ kind }) => kind === 'zygote')) send(pid, 'SIGTERM');
  for (const { pid } of sandboxes.filter(({ kind }) => kind !== 'zygote')) {
    await machine.thaw(pid);
    for (const one of await machine.tree(pid)) send(one, 'SIGKILL');
  }
  const told = [...services, ...sandboxes].filter(isTold);
  const left = await untilGone(machine, told, SANDBOXES_MS);
  for (const { pid, kind } of left) failures.push(`process ${pid} (${kind}) still runs`);

  const containers = await endContainers(io, machine, failures);
  const lines = [...linesOf(told.filter(({ pid }) => !left.some(one => one.pid === pid)))];
  if (containers > 0) lines.push(`ended ${counted(containers, 'container', 'containers')}`);
  io.out.write(lines.length === 0 ? 'nothing of rookery was ended\n' : lines.map(line => `${line}\n`).join(''));
  if (failures.length === 0) return EXIT.ok;
  const advice = process.getuid?.() === 0 ? '' : '\nRun it as the user of the service, or as root.';
  throw new CliError([...new Set(failures)].join('\n') + advice);
}

async function endContainers(io: Io, machine: Machine, failures: string[]): Promise<number> {
  const config = await loadConfig({ file: null, flags: {}, sets: [] }, io.environment).catch(() => null);
  const { containers, close } = await machine.containers(config?.docker.host ?? null, io.environment);
  let ended = 0;
  for (const container of containers) {
    try {
      await container.remove();
      ended++;
    } catch (error) {
      failures.push(error instanceof Error ? error.message : String(error));
    }
  }
  close();
  return ended;
}

/** Returns the processes that still exist after `boundMs`. */
async function untilGone(
  machine: Machine,
  all: readonly MachineProcess[],
  boundMs: number,
): Promise<readonly MachineProcess[]> {
  const endMs = performance.now() + boundMs;
  for (;;) {
    const now = new Set((await machine.find()).map(({ pid }) => pid));
    const left = all.filter(({ pid }) => now.has(pid));
    if (left.length === 0 || performance.now() > endMs) return left;
    await delay(LOOK_MS);
  }
}

/** Returns one line for each data directory. */
function linesOf(ended: readonly MachineProcess[]): readonly string[] {
  const places = new Map(ended.map(({ dataDir, isLost }) => [dataDir, isLost]));
  return [...places].map(([dataDir, isLost]) => {
    const here = ended.filter(one => one.dataDir === dataDir);
    const services = here.filter(({ kind }) => kind === 'service').length;
    const sandboxes = here.filter(({ kind }) => kind === 'sandbox' || kind === 'supervised').length;
    const what = [
      ...(services > 0 ? [counted(services, 'service', 'services')] : []),
      ...(sandboxes > 0 ? [counted(sandboxes, 'sandbox', 'sandboxes')] : []),
    ];
    const where = dataDir === null ? 'an unknown data directory' : `${dataDir}${isLost ? ' (removed)' : ''}`;
    return `${where}: ended ${what.length === 0 ? 'what kept sandboxes ready' : what.join(' and ')}`;
  });
}
