import type { ImageCatalog } from '../api/images.ts';
import { failedPrecondition, messageOf } from '../core/error.ts';
import { IMAGE_SANDBOX_TYPE } from '../core/sandbox-types.ts';
import type { DriverImages } from '../sandbox/driver.ts';
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
      return (await (await this.ofDriver()).has(reference)) ? 'present' : 'missing';
    } catch (error) {
      this.#log.debug({ error: messageOf(error) }, 'images cannot be listed');
      return 'unavailable';
    }
  }

  async ofDriver(): Promise<DriverImages> {
    const { images } = await this.#drivers.get(IMAGE_SANDBOX_TYPE);
    if (images === undefined) throw failedPrecondition(`sandboxes of type ${IMAGE_SANDBOX_TYPE} have no images`);
    return images;
  }
}
