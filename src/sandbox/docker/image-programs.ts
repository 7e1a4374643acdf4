import { LRUCache } from 'lru-cache';
import { failedPrecondition } from '../../core/error.ts';
import type { RuntimeCommand } from '../driver.ts';
import { type Engine, statusOf } from './engine.ts';
import type { SecurityOptions } from './filter.ts';
import type { Images } from './images.ts';
import { outputOf } from './probes.ts';

const MOST_ANSWERS = 1000;
const OLDEST_NODE = 20;

type ImageProgram = NonNullable<Extract<RuntimeCommand, { kind: 'exec' }>['imageProgram']>;

/** Command that prints each program's version, its title for messages, and the runtime that needs it. */
const PROGRAMS = {
  java: { argv: ['java', '-version'], title: 'Java', runtime: 'java' },
  node: { argv: ['node', '--version'], title: 'Node.js', runtime: 'nodejs' },
} as const;

/** Versions of the programs that runtimes need in images. Each image is asked once per program. */
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
    if (id === null) throw failedPrecondition(`image ${image} was pulled and is not there`);
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
