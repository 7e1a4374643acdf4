import { expect, vi } from 'vitest';
import type { DockerDaemon } from '../parts/docker.ts';
import { IMAGES } from '../parts/docker-images.ts';
import { Bed } from './agents.ts';

const WAIT_MS = 60_000;
const CODE = `
import os
n = 0
def remember(event, context):
    context.state["n"] = context.state.get("n", 0) + 1
    return context.state["n"]
def count(event, context):
    global n
    n += 1
    print("call", n)
    return n
def eat(event, context):
    parts = []
    while True:
        parts.append(b"x" * 1000000)
def end(event, context):
    os._exit(event)
`;

interface Instance {
  readonly status: string;
  readonly status_reason: string;
  readonly sandbox_id: string;
  readonly rootfs: { readonly type: string };
}

/** A served Rookery whose agents are containers, with helpers for its daemon. */
export class DockerBed implements AsyncDisposable {
  readonly bed: Bed;
  readonly daemon: Pick<DockerDaemon, 'docker'>;

  private constructor(bed: Bed, daemon: Pick<DockerDaemon, 'docker'>) {
    this.bed = bed;
    this.daemon = daemon;
  }

  static async start(daemon: Pick<DockerDaemon, 'docker' | 'host'>): Promise<DockerBed> {
    return new DockerBed(await Bed.start({ 'code.py': CODE }, { env: { ROOKERY_DOCKER_HOST: daemon.host } }), daemon);
  }

  create(name: string, handler: string, spec: Readonly<Record<string, unknown>> = {}): Promise<string> {
    return this.bed.create(name, handler, this.spec(spec));
  }

  spec(changes: Readonly<Record<string, unknown>> = {}): Readonly<Record<string, unknown>> {
    return {
      sandbox_type: 'docker',
      runtime: 'python3.11',
      rootfs: { imageurl: IMAGES.python },
      memory: 128,
      ...changes,
    };
  }

  async record(id: string): Promise<Instance> {
    return (await this.bed.ask('GET', `/api/agent/${id}`)).body.instance as never;
  }

  async isFailed(id: string, reason: RegExp): Promise<void> {
    const expected = { status: 'FAILED', status_reason: expect.stringMatching(reason) };
    await vi.waitFor(async () => expect(await this.record(id)).toMatchObject(expected), {
      timeout: WAIT_MS,
      interval: 20,
    });
  }

  /** Returns ids of the daemon's containers that are instances of this server, running or not. */
  async containers(): Promise<readonly string[]> {
    const { instances } = (await this.bed.ask('GET', '/api/agent?limit=1000')).body as { instances: Instance[] };
    const known = new Set(instances.map(({ sandbox_id: id }) => id));
    const all = await this.daemon.docker('ps', '--all', '--no-trunc', '--quiet', '--filter', 'label=rookery.instance');
    return all.split('\n').filter(id => known.has(id));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.bed[Symbol.asyncDispose]();
  }
}
