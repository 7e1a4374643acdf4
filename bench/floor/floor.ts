import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** Kind of floor: `http` uses `node:http`, as any server in Node.js does; `raw` uses raw sockets instead. */
export type FloorKind = 'http' | 'raw';

const SERVERS: Readonly<Record<FloorKind, string>> = {
  http: fileURLToPath(new URL('server.ts', import.meta.url)),
  raw: fileURLToPath(new URL('raw-server.ts', import.meta.url)),
};

/** A running floor. It answers `POST <url>/0` to `POST <url>/<loops - 1>`. */
export class Floor {
  readonly url: string;
  readonly paths: readonly string[];
  readonly #process: ChildProcess;

  private constructor(process: ChildProcess, url: string, loops: number) {
    this.#process = process;
    this.url = url;
    this.paths = Array.from({ length: loops }, (_, index) => `/${index}`);
  }

  static async start(python: string, loops: number, kind: FloorKind = 'http'): Promise<Floor> {
    const child = spawn(process.execPath, ['--import', 'tsx', SERVERS[kind], python, String(loops)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const line = await new Promise<string>((resolve, reject) => {
      child.stdout.once('data', data => resolve(String(data)));
      child.once('error', reject);
      child.once('exit', code => reject(new Error(`the floor ended with ${code}`)));
    });
    return new Floor(child, line.trim().split(' ')[1] ?? '', loops);
  }

  async stop(): Promise<void> {
    const ended = new Promise(resolve => this.#process.once('exit', resolve));
    this.#process.kill('SIGTERM');
    await ended;
  }
}
