import { randomUUID } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ENGINE_STATE } from '../../src/core/host-path.ts';
import { DockerDriver, type DockerDriverOptions } from '../../src/sandbox/docker/driver.ts';
import type { SandboxSpec } from '../../src/sandbox/driver.ts';
import { SILENT } from '../../src/telemetry/logger.ts';
import { removalsIn } from '../parts/removals.ts';

const CODE = join(import.meta.dirname, 'code');

/** Whoever runs the tests, as a user of the image: root inside may not do more with files than any other user. */
const USER = process.getuid?.() === 0 ? '' : String(process.getuid?.());

/** Docker drivers over a data directory of their own, on one daemon. */
export class DockerFixture {
  readonly dataDir = mkdtempSync(join(tmpdir(), 'rookery-docker-'));
  /** Where the behaviours are inside. */
  readonly codePath = '/code';
  readonly #options: Partial<DockerDriverOptions>;
  readonly #image: string;
  readonly #drivers: DockerDriver[] = [];

  /** `host`: of the daemon. `image`: one with Python 3.11. */
  constructor(host: string, image: string, options: Partial<DockerDriverOptions> = {}) {
    this.#image = image;
    this.#options = { host, ...options };
  }

  driver(options: Partial<DockerDriverOptions> = {}): DockerDriver {
    const driver = new DockerDriver({
      environment: process.env,
      dataDir: this.dataDir,
      mountPolicy: { closed: [this.dataDir, ...ENGINE_STATE], allow: null },
      removals: removalsIn(this.dataDir),
      logger: SILENT,
      ...this.#options,
      ...options,
    });
    this.#drivers.push(driver);
    return driver;
  }

  spec(changes: Partial<SandboxSpec> = {}): SandboxSpec {
    return {
      instanceId: randomUUID(),
      tenant: 'default',
      command: { kind: 'python', version: '3.11' },
      secret: randomUUID(),
      rootfs: { type: 'image', imageUrl: this.#image, user: USER },
      env: { HOME: '/tmp', PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C.UTF-8' },
      workingDir: '/',
      mounts: [{ source: CODE, target: this.codePath, readonly: true }],
      ports: [],
      cpuMillis: 1000,
      memoryMb: 256,
      maxProcesses: 256,
      maxOpenFiles: 4096,
      network: 'host',
      requireIsolation: false,
      ...changes,
    };
  }

  /** What its containers and networks are labelled with; the names of networks have its beginning. */
  get installation(): string {
    return readFileSync(join(this.dataDir, 'run/docker/installation'), 'utf8');
  }

  async dispose(): Promise<void> {
    const last = this.driver();
    for (const { handle } of await last.list()) await last.remove(handle);
    for (const driver of this.#drivers) await driver.close();
    rmSync(this.dataDir, { recursive: true, force: true });
  }
}
