/** Checks templates that users build with the newest JavaScript SDK. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Sandbox, Template } from 'e2b';
import { check, runChecks } from './checks.mjs';

const nameOf = word => `${word}-${randomUUID().slice(0, 8)}`;

check('a template has the files and variables of its steps', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'rookery-e2b-template-'));
  await writeFile(join(directory, 'a.txt'), 'from the client');
  const name = nameOf('node');
  const lines = [];
  try {
    const template = Template({ fileContextPath: directory })
      .fromBaseImage()
      .copy('a.txt', 'copied/')
      .setEnvs({ COLOR: 'red' })
      .runCmd('echo $COLOR > color.txt');
    const built = await Template.build(template, name, { onBuildLogs: entry => lines.push(String(entry)) });
    assert.ok(built.templateId && built.buildId);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  assert.ok(lines.some(line => line.includes('RUN echo $COLOR')));
  assert.equal(await Template.exists(name), true);
  const sandbox = await Sandbox.create(name, { timeoutMs: 120_000 });
  try {
    assert.equal((await sandbox.commands.run('cat copied/a.txt color.txt')).stdout, 'from the clientred\n');
  } finally {
    await sandbox.kill();
  }
});

check('a build that fails has the step and the reason', async () => {
  const template = Template().fromBaseImage().runCmd('echo not so >&2; exit 5');
  await assert.rejects(Template.build(template, nameOf('broken')), /step 1 .* exited with status 5: not so/);
  const image = Template().fromImage('alpine:3');
  await assert.rejects(Template.build(image, nameOf('image')), /the image alpine:3 needs a Docker daemon/);
});

check('a fork has the files of a sandbox without processes', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000 });
  const forks = [];
  try {
    await sandbox.files.write('kept', 'of the first');
    forks.push(...(await sandbox.fork({ timeoutMs: 60_000, count: 2 })));
    for (const fork of forks) assert.equal(await fork.files.read('kept'), 'of the first');
    await sandbox.commands.run('sleep 1234', { background: true });
    await assert.rejects(sandbox.fork(), /copies files, not memory; the sandbox runs: \d+ sleep 1234/);
  } finally {
    await Promise.all([sandbox, ...forks].map(each => each.kill()));
  }
});

await runChecks();
