import { LRUCache } from 'lru-cache';
import { failedPrecondition } from '../../core/error.ts';
import { type Engine, statusOf } from './engine.ts';
import type { SecurityOptions } from './filter.ts';
import type { Images } from './images.ts';
import { outputOf } from './probes.ts';

const MOST_IMAGES = 1000;

/** Which Java images have; asked once per image. */
export class Javas {
  readonly #engine: Engine;
  readonly #images: Images;
  readonly #installation: string;
  readonly #security: SecurityOptions;
  /** Image id → major version, `''` for an image without Java. */
  readonly #versions = new LRUCache<string, Promise<string>>({ max: MOST_IMAGES });

  constructor(engine: Engine, images: Images, installation: string, security: SecurityOptions) {
    this.#engine = engine;
    this.#images = images;
    this.#installation = installation;
    this.#security = security;
  }

  /** Fails with `failed_precondition` (`invalid function: …`) when the image's `java` is not of this version. */
  async assertVersion(image: string, version: string, signal: AbortSignal): Promise<void> {
    const id = (await this.#idOf(image)) ?? (await this.#pulled(image, signal));
    let asking = this.#versions.get(id);
    if (asking === undefined) {
      asking = this.#ask(id);
      this.#versions.set(id, asking);
      asking.catch(() => this.#versions.delete(id));
    }
    const found = await asking;
    if (found === version) return;
    const what = found === '' ? 'has no Java' : `has Java ${found}`;
    throw failedPrecondition(
      `invalid function: runtime java${version} is not available: image ${image} ${what}, and Java ${version} is needed`,
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

  async #ask(id: string): Promise<string> {
    const argv = ['java', '-version'];
    const said = await outputOf(this.#engine, this.#installation, id, argv, await this.#security.get());
    return majorOf(said ?? '');
  }
}

/** `17` of `openjdk version "17.0.9"`, `8` of `java version "1.8.0_292"`; `''` when there is none. */
export function majorOf(text: string): string {
  return /version "(?:1\.)?(\d+)/.exec(text)?.[1] ?? '';
}
