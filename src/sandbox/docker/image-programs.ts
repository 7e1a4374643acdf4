import { randomUUID } from 'node:crypto';
import type { Readable } from 'node:stream';
import { LRUCache } from 'lru-cache';
import { failedPrecondition } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import type { RuntimeCommand } from '../driver.ts';
import type { SecurityOptions } from './daemon.ts';
import { type Engine, FrameSplitter, LABEL_INSTALLATION, LABEL_INSTANCE, statusOf } from './engine.ts';
import type { Images } from './images.ts';

const MOST_ANSWERS = 1000;
const OLDEST_NODE = 20;

type ImageProgram = NonNullable<Extract<RuntimeCommand, { kind: 'exec' }>['imageProgram']>;

/** Command that prints each program's version, its title for messages, and the runtime that needs it. */
const PROGRAMS = {
  java: { argv: ['java', '-version'], title: 'Java', runtime: 'java' },
  node: { argv: ['node', '--version'], title: 'Node.js', runtime: 'nodejs' },
} as const;

/** Versions of the programs that runtimes need in images. Each image is checked once per program. */
export class ImagePrograms {
  readonly #engine: Engine;
  readonly #images: Images;
  readonly #installation: string;
  readonly #security: SecurityOptions;
  /** Program and image id → major version; `''` for an image without the program. */
  readonly #versions = new LRUCache<string, Promise<string>>({ max: MOST_ANSWERS });

  constructor(engine: Engine, images: Images, installation: string, security: SecurityOptions) {
    this.#engine = engine;
    this.#images = images;
    this.#installation = installation;
    this.#security = security;
  }

  /**
   * Checks the version of a program in an image. An empty version accepts any supported one. Fails with
   * `failed_precondition` (`invalid function: …`) when the version does not match.
   */
  async assertVersion(image: string, { name, version }: ImageProgram, signal: AbortSignal): Promise<void> {
    const id = (await this.#idOf(image)) ?? (await this.#pulled(image, signal));
    const key = `${name} ${id}`;
    let asking = this.#versions.get(key);
    if (asking === undefined) {
      asking = this.#ask(id, name);
      this.#versions.set(key, asking);
      asking.catch(() => this.#versions.delete(key));
    }
    const found = await asking;
    if (version === '' ? Number(found) >= OLDEST_NODE : found === version) return;
    const { title, runtime } = PROGRAMS[name];
    const what = found === '' ? `has no ${title}` : `has ${title} ${found}`;
    const needed = version === '' ? `${title} ${OLDEST_NODE} or newer` : `${title} ${version}`;
    throw failedPrecondition(
      `invalid function: runtime ${runtime}${version} is not available: image ${image} ${what}, and ${needed} is needed`,
    );
  }

  async #idOf(image: string): Promise<string | null> {
    try {
      return (await this.#engine.request('look for an image', docker => docker.getImage(image).inspect())).Id;
    } catch (error) {
      if (statusOf(error) === 404) return null;
      throw error;
    }
  }

  async #pulled(image: string, signal: AbortSignal): Promise<string> {
    await this.#images.pull(image, signal);
    const id = await this.#idOf(image);
    if (id === null) throw failedPrecondition(`image ${image} was pulled and does not exist afterwards`);
    return id;
  }

  async #ask(id: string, name: ImageProgram['name']): Promise<string> {
    const said = await outputOf(this.#engine, this.#installation, id, PROGRAMS[name].argv, await this.#security.get());
    return majorOf(said ?? '');
  }
}

/**
 * Returns the major version: `17` of `openjdk version "17.0.9"`, `8` of `java version "1.8.0_292"`, `22` of
 * `v22.18.0`. Returns `''` when the text has no version.
 */
export function majorOf(text: string): string {
  return /(?:version "(?:1\.)?|^v)(\d+)/m.exec(text)?.[1] ?? '';
}

const PROBE_TIMEOUT_MS = 20_000;
const PROBE_MEMORY_BYTES = 512 * 1024 * 1024;
const PROBE_PROCESSES = 64;
const MAX_OUTPUT_BYTES = 64 * 1024;

/**
 * Returns the output of an image's command, stdout and stderr together. The command runs in a container of
 * its own, without network and capabilities. Null: the image has no such command. Fails with
 * `failed_precondition` when the command exceeds its time limit.
 */
export async function outputOf(
  engine: Engine,
  installation: string,
  image: string,
  argv: readonly string[],
  securityOptions: readonly string[],
): Promise<string | null> {
  const { id } = await engine.request('make a probe', docker =>
    docker.createContainer({
      Image: image,
      Entrypoint: [...argv],
      Cmd: [],
      User: '0',
      AttachStdout: true,
      AttachStderr: true,
      // If the server ends first, the reconciler finds a container without a record and removes it.
      Labels: { [LABEL_INSTALLATION]: installation, [LABEL_INSTANCE]: randomUUID() },
      Healthcheck: { Test: ['NONE'] },
      HostConfig: {
        NetworkMode: 'none',
        CapDrop: ['ALL'],
        SecurityOpt: [...securityOptions],
        Memory: PROBE_MEMORY_BYTES,
        MemorySwap: PROBE_MEMORY_BYTES,
        PidsLimit: PROBE_PROCESSES,
        LogConfig: { Type: 'none', Config: {} },
      },
    }),
  );
  try {
    const container = engine.docker.getContainer(id);
    const attach = { stream: true, stdout: true, stderr: true };
    const stream = await engine.request('attach to a probe', () => container.attach(attach));
    const reading = readAll(stream as unknown as Readable);
    reading.catch(() => undefined);
    try {
      await engine.request('start a probe', () => container.start());
    } catch (error) {
      if (statusOf(error) === 404 || /executable file not found|no such file/i.test(String(error))) return null;
      throw error;
    }
    const late = `${argv.join(' ')} in image ${image} did not end within ${PROBE_TIMEOUT_MS / 1000} s`;
    return await within(reading, PROBE_TIMEOUT_MS, late).catch((error: unknown) => {
      throw failedPrecondition(late, { cause: error });
    });
  } finally {
    await engine
      .request('remove a probe', docker => docker.getContainer(id).remove({ force: true, v: true }))
      .catch(() => undefined);
  }
}

async function readAll(stream: Readable): Promise<string> {
  const splitter = new FrameSplitter();
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stream) {
    for (const { data } of splitter.push(chunk as Buffer)) {
      bytes += data.length;
      if (bytes <= MAX_OUTPUT_BYTES) parts.push(data);
    }
  }
  return Buffer.concat(parts).toString('utf8');
}
