import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

export function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    if (pid > 1) process.kill(pid, signal);
  } catch {
    // The process has ended.
  }
}

/** Returns processes whose command line names a data directory, or whose stdin or stdout is a file in it. */
export function pidsOf(dataDir: string, isWanted: (cmdline: string) => boolean = () => true): readonly number[] {
  const own = process.pid;
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name) && Number(name) !== own)
    .map(Number)
    .filter(pid => {
      const cmdline = cmdlineOf(pid);
      const isOfIt =
        cmdline.includes(dataDir) || [0, 1].some(descriptor => linkOf(pid, descriptor).startsWith(`${dataDir}/`));
      return isOfIt && isWanted(cmdline);
    });
}

/** Returns zygotes without their forks, which have the same name at first. */
export function zygotesOf(dataDir: string): readonly number[] {
  const family = pidsOf(dataDir, cmdline => cmdline.startsWith('rookery: zygote'));
  return family.filter(pid => linkOf(pid, 1).startsWith(`${dataDir}/run/`) && !family.includes(parentOf(pid)));
}

export function initsOf(dataDir: string): readonly number[] {
  return pidsOf(dataDir, cmdline => cmdline.startsWith('rookery: init'));
}

export function serversOf(dataDir: string): readonly number[] {
  return pidsOf(dataDir, cmdline => cmdline.includes('\0serve\0'));
}

function cmdlineOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

function parentOf(pid: number): number {
  try {
    return Number(/^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  } catch {
    return 0;
  }
}

/** Returns the target of a descriptor. */
function linkOf(pid: number, descriptor: number): string {
  try {
    return readlinkSync(`/proc/${pid}/fd/${descriptor}`);
  } catch {
    return '';
  }
}
