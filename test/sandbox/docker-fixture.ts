import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DockerDriver, type DockerDriverOptions } from '../../src/sandbox/docker/driver.ts';
import type { SandboxSpec } from '../../src/sandbox/driver.ts';
import { DriverFixture } from './driver-fixture.ts';

/** User of the containers: the owner of the test files, because root inside cannot override their modes. */
const USER = process.getuid?.() === 0 ? '' : String(process.getuid?.());

/** Drivers on one daemon. */
export class DockerFixture extends DriverFixture<DockerDriver, DockerDriverOptions> {
  readonly #options: Partial<DockerDriverOptions>;
  readonly #image: string;

  /** `host` is the address of the daemon, and `image` an image with Python 3.11. */
  constructor(host: string, image: string, options: Partial<DockerDriverOptions> = {}) {
    super(options.dataDir ?? mkdtempSync(join(tmpdir(), 'rookery-docker-')), '/code');
    this.#image = image;
    this.#options = { host, ...options };
  }

  protected override make(options: Partial<DockerDriverOptions>): DockerDriver {
    return new DockerDriver({ ...this.common(), ...this.#options, ...options });
  }

  override spec(changes: Partial<SandboxSpec> = {}): SandboxSpec {
    return super.spec({ rootfs: { type: 'image', imageUrl: this.#image, user: USER }, ...changes });
  }

  /** Label of the driver's containers and networks. The names of networks share its beginning. */
  get installation(): string {
    return readFileSync(join(this.dataDir, 'run/docker/installation'), 'utf8');
  }
}
