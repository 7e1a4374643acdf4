import type { ImageCatalog } from '../api/images.ts';
import { messageOf } from '../core/error.ts';
import { IMAGE_SANDBOX_TYPE } from '../core/sandbox-types.ts';
import type { Drivers } from '../sandbox/drivers.ts';
import type { Logger } from '../telemetry/logger.ts';

/** The images of the Docker daemon of this machine, if it has one. */
export class ServiceImages implements ImageCatalog {
  readonly #drivers: Pick<Drivers, 'get'>;
  readonly #log: Pick<Logger, 'debug'>;

  constructor(drivers: Pick<Drivers, 'get'>, log: Pick<Logger, 'debug'>) {
    this.#drivers = drivers;
    this.#log = log;
  }

  async state(reference: string): Promise<'present' | 'missing' | 'unavailable'> {
    try {
      const { images } = await this.#drivers.get(IMAGE_SANDBOX_TYPE);
      if (images === undefined) return 'unavailable';
      return (await images.has(reference)) ? 'present' : 'missing';
    } catch (error) {
      this.#log.debug({ error: messageOf(error) }, 'images cannot be listed');
      return 'unavailable';
    }
  }
}
