import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DockerDaemon, runDocker } from './docker.ts';
import { IMAGES, type ImageName } from './docker-images.ts';

/**
 * One Docker daemon for all test files of a run. Vitest's main process holds it: `setup` offers it on a socket, the first test file that
 * asks has it started, the end of the run stops it.
 */
const OFFER = 'ROOKERY_TEST_DOCKER_OFFER';
/** A daemon with the images, for a run that may start none: as somebody else than root. */
const GIVEN = 'ROOKERY_TEST_DOCKER_HOST';
const HOLDER = Symbol.for('rookery.test.docker');

/** What a test file gets. The images of `IMAGES` are there. */
export interface SharedDocker {
  readonly host: string;
  /** Runs the docker command line client to its end. Fails with what it wrote. */
  docker(...args: readonly string[]): Promise<string>;
}

/** The daemon of this test run, started when it is the first that asks. In `beforeAll`, with a timeout of `DOCKER_START_MS`. */
export async function sharedDocker(): Promise<SharedDocker> {
  const given = process.env[GIVEN];
  if (given !== undefined) return sharedAt(given);
  const socket = process.env[OFFER];
  if (socket === undefined || !existsSync(socket)) throw new Error('this run of Vitest offers no docker daemon');
  const text = await new Promise<string>((resolve, reject) => {
    const chunks: Buffer[] = [];
    connect(socket)
      .on('data', chunk => chunks.push(chunk))
      .once('end', () => resolve(Buffer.concat(chunks).toString()))
      .once('error', reject);
  });
  const answer = JSON.parse(text) as { readonly host?: string; readonly error?: string };
  if (answer.host === undefined) throw new Error(answer.error);
  return sharedAt(answer.host);
}

function sharedAt(host: string): SharedDocker {
  return { host, docker: (...args) => runDocker({ DOCKER_HOST: host }, args) };
}

export const DOCKER_START_MS = 180_000;

class Holder {
  readonly directory = mkdtempSync(join(tmpdir(), 'rookery-offer-'));
  readonly socket = join(this.directory, 'socket');
  /** Vitest sets each project up by itself. */
  users = 0;
  readonly #server: Server;
  #daemon: Promise<DockerDaemon> | null = null;

  constructor() {
    this.#server = createServer(socket => {
      socket.on('error', () => socket.destroy());
      this.#start().then(
        ({ host }) => socket.end(JSON.stringify({ host })),
        error => socket.end(JSON.stringify({ error: String(error) })),
      );
    });
    this.#server.unref();
  }

  async listen(): Promise<void> {
    await new Promise<void>(resolve => this.#server.listen(this.socket, resolve));
  }

  #start(): Promise<DockerDaemon> {
    this.#daemon ??= DockerDaemon.start({ images: Object.keys(IMAGES) as ImageName[] });
    return this.#daemon;
  }

  async close(): Promise<void> {
    this.#server.close();
    const daemon = await this.#daemon?.catch(() => null);
    await daemon?.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

const held = globalThis as { [HOLDER]?: Holder };

/** Vitest's global set-up, called once for each project. */
export async function setup(): Promise<void> {
  let holder = held[HOLDER];
  if (holder === undefined) {
    holder = new Holder();
    held[HOLDER] = holder;
    process.env[OFFER] = holder.socket;
    await holder.listen();
  }
  holder.users += 1;
}

export async function teardown(): Promise<void> {
  const holder = held[HOLDER];
  if (holder === undefined) return;
  holder.users -= 1;
  if (holder.users > 0) return;
  delete held[HOLDER];
  delete process.env[OFFER];
  await holder.close();
}
