import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isAlive } from './docker-residue.ts';

const END_MS = 20_000;
const LOOK_MS = 25;

/** A component of a one-node test cluster that a test can kill and restart unchanged. */
export class Component {
  readonly #directory: string;
  readonly #name: string;
  #pid: number;
  #argv: readonly string[];
  #env: NodeJS.ProcessEnv;

  /** Opens a component; `name` is its name in the file `pids` next to the kubeconfig. */
  constructor(kubeconfig: string, name: 'kubelet' | 'apiserver') {
    this.#directory = dirname(kubeconfig);
    this.#name = name;
    this.#pid = Number(this.#lines().find(([, other]) => other === name)?.[0]);
    this.#argv = this.#read('cmdline');
    this.#env = Object.fromEntries(
      this.#read('environ').map(entry => [entry.slice(0, entry.indexOf('=')), entry.slice(entry.indexOf('=') + 1)]),
    );
  }

  /** Kills the component with SIGKILL. */
  async kill(): Promise<void> {
    process.kill(this.#pid, 'SIGKILL');
    const giveUpAt = Date.now() + END_MS;
    while (isAlive(this.#pid)) {
      if (Date.now() > giveUpAt) throw new Error(`${this.#name} did not end`);
      await delay(LOOK_MS);
    }
  }

  /** Starts the component unless it runs. */
  async start(): Promise<void> {
    if (isAlive(this.#pid)) return;
    const [program = '', ...args] = this.#argv;
    const log = openSync(join(this.#directory, 'log', `${this.#name}.log`), 'a');
    const child = spawn(program, args, {
      cwd: this.#directory,
      env: this.#env,
      detached: true,
      stdio: ['ignore', log, log],
    });
    await once(child, 'spawn');
    closeSync(log);
    child.unref();
    this.#pid = child.pid as number;
    // The program that ends the cluster reads this file.
    const lines = this.#lines().map(([pid, name]) => `${name === this.#name ? this.#pid : pid} ${name}\n`);
    writeFileSync(join(this.#directory, 'pids'), lines.join(''));
  }

  #lines(): readonly (readonly [pid: string, name: string])[] {
    const lines = readFileSync(join(this.#directory, 'pids'), 'utf8').trim().split('\n');
    return lines.map(line => line.split(' ') as [string, string]);
  }

  #read(file: 'cmdline' | 'environ'): readonly string[] {
    return readFileSync(`/proc/${this.#pid}/${file}`, 'utf8')
      .split('\0')
      .filter(part => part !== '');
  }
}
