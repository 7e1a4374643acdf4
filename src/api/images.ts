import { invalidRequest, notFound } from '../core/error.ts';
import type { DriverImages } from '../sandbox/driver.ts';

/** The images from which sandboxes without code are made. */
export interface ImageCatalog {
  /** Returns whether an image exists. `unavailable`: no Docker daemon answers this service. */
  state(reference: string): Promise<'present' | 'missing' | 'unavailable'>;
  /** Returns the images of the driver. Fails with `failed_precondition` if no driver has any. */
  ofDriver(): Promise<DriverImages>;
}

const MAX_SHOWN_CHARS = 255;

/** Fails with `not_found` unless the image exists, and with `invalid_request` without a Docker daemon. */
export async function checkImage(images: ImageCatalog, reference: string): Promise<void> {
  const state = await images.state(reference);
  const name = JSON.stringify(reference.slice(0, MAX_SHOWN_CHARS));
  if (state === 'present') return;
  if (state === 'missing') {
    throw notFound(
      `there is no image ${name} on the machine of the service; get it there with: docker pull ${reference.slice(0, MAX_SHOWN_CHARS)}`,
    );
  }
  throw invalidRequest(
    `invalid request body: image ${name} needs a Docker daemon, and this service reaches none: rookery doctor says why`,
  );
}
