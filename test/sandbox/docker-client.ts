import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { IMAGES } from '../parts/docker-images.ts';

const execute = promisify(execFile);
const TIMEOUT_MS = 60_000;

/** The docker command, as another program on the same daemon would use it. */
export interface DockerClient {
  docker(...args: readonly string[]): Promise<string>;
  inspect(container: string): Promise<Record<string, unknown>>;
  /** Returns the containers with the label of a server. */
  listContainers(installation: string): Promise<readonly string[]>;
  /** Returns the greeting of the program that listens on a port of this host. */
  read(port: number): Promise<string>;
}

export function dockerClient(host: string): DockerClient {
  const docker = async (...args: readonly string[]) => {
    const { stdout } = await execute('docker', ['--host', host, ...args], { timeout: TIMEOUT_MS });
    return stdout.trim();
  };
  return {
    docker,
    inspect: async container => (JSON.parse(await docker('inspect', container)) as [Record<string, unknown>])[0],
    listContainers: async installation => {
      const ids = await docker('ps', '--all', '--quiet', '--filter', `label=rookery.installation=${installation}`);
      return ids.split('\n').filter(id => id !== '');
    },
    read: port =>
      new Promise((resolve, reject) => {
        let text = '';
        connect(port, '127.0.0.1')
          .on('data', chunk => {
            text += chunk;
          })
          .once('error', reject)
          .once('close', () => resolve(text))
          .setTimeout(TIMEOUT_MS, function onTimeout(this: { destroy(): void }) {
            this.destroy();
          });
      }),
  };
}

/** Builds the Python image with additional executable files (path → text). Returns its reference. */
export async function buildImage(
  client: DockerClient,
  tag: string,
  files: Readonly<Record<string, string>>,
): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'rookery-image-'));
  try {
    const steps = await Promise.all(
      Object.entries(files).map(async ([path, text], index) => {
        await writeFile(join(directory, String(index)), text, { mode: 0o755 });
        return `COPY ${index} ${path}`;
      }),
    );
    await writeFile(join(directory, 'Dockerfile'), [`FROM ${IMAGES.python}`, ...steps, ''].join('\n'));
    await client.docker('build', '--quiet', '--tag', tag, directory);
    return tag;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
