import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { IMAGES } from '../parts/docker-images.ts';
import { DOCKER_START_MS, sharedDocker } from '../parts/docker-shared.ts';
import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { register, writeCode } from './functions.ts';

const CODE = `
import os, subprocess
import price
def handler(event, context):
    return {'price': price.PRICE, 'place': price.__file__, 'program': subprocess.check_output(['report']).decode()}
`;
const LAYERED = { price: 2, place: '/opt/python/price.py', program: 'ok' };

/** A service with a directory, in which two layers are made and uploaded. */
class LayerBed implements AsyncDisposable {
  readonly served: Served;
  readonly #directory: string;

  private constructor(served: Served, directory: string) {
    this.served = served;
    this.#directory = directory;
  }

  static async start(env: Readonly<Record<string, string>>): Promise<LayerBed> {
    const directory = mkdtempSync(join(tmpdir(), 'rookery-layers-'));
    return new LayerBed(await Served.start({ args: [STOP_AGENTS], env }), directory);
  }

  /** Registers a function with two layers and returns the value of a call. */
  async value(name: string, changes: Readonly<Record<string, unknown>>): Promise<unknown> {
    const first = await this.#upload('first', { 'python/price.py': 'PRICE = 1', 'bin/report': '#!/bin/sh\nprintf ok' });
    const second = await this.#upload('second', { 'python/price.py': 'PRICE = 2' });
    const code = writeCode(join(this.#directory, name), { 'app.py': CODE });
    await register(this.served, name, code, { layers: [first, second], ...changes });
    const answer = await fetch(`${this.served.frontendUrl}/invocations/default/default/${name}/`, {
      method: 'POST',
      body: '{}',
    });
    return await answer.json();
  }

  async #upload(name: string, files: Readonly<Record<string, string>>): Promise<string> {
    const root = join(this.#directory, name);
    for (const [file, text] of Object.entries(files)) {
      mkdirSync(join(root, file, '..'), { recursive: true });
      writeFileSync(join(root, file), text, { mode: file.startsWith('bin/') ? 0o755 : 0o644 });
    }
    execFileSync('tar', ['-czf', `${root}.tgz`, '-C', root, '.']);
    const body = readFileSync(`${root}.tgz`);
    const sha256 = createHash('sha256').update(body).digest('hex');
    const answer = await fetch(`${this.served.frontendUrl}/api/code/${sha256}`, { method: 'PUT', body });
    expect(answer.status).toBe(200);
    return `code://${sha256}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.served.remove();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

describeWith(['supervisor', 'root', 'namespaces'], 'layers of AWS Lambda under supervisord', () => {
  let supervisord: TestSupervisord;
  beforeAll(async () => {
    supervisord = await TestSupervisord.start();
  });
  afterAll(() => supervisord?.dispose());

  test('a function in a supervisor sandbox uses its layers', async () => {
    const { url, includeDir } = supervisord;
    await using bed = await LayerBed.start({
      ROOKERY_SUPERVISOR_URL: url,
      ROOKERY_SUPERVISOR_INCLUDE_DIR: includeDir,
    });
    expect(await bed.value('supervised', { sandboxType: 'supervisor' })).toEqual(LAYERED);
  }, 180_000);
});

describeWith(['docker'], 'layers of AWS Lambda in containers', () => {
  let host: string;
  beforeAll(async () => {
    ({ host } = await sharedDocker());
  }, DOCKER_START_MS);

  test('a function in a container uses its layers', async () => {
    await using bed = await LayerBed.start({ ROOKERY_DOCKER_HOST: host });
    const rootfs = { type: 'image', imageurl: IMAGES.python };
    expect(await bed.value('contained', { sandboxType: 'docker', rootfs })).toEqual(LAYERED);
  }, 180_000);
});
