/** Checks templates that users build from images of a Docker daemon with the newest JavaScript SDK. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Sandbox, Template } from 'e2b';
import { check, runChecks } from './checks.mjs';

const { DEBIAN_IMAGE: image } = process.env;
const nameOf = word => `${word}-${randomUUID().slice(0, 8)}`;

check('a template of an image has the files and variables of its steps', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'rookery-e2b-template-'));
  await writeFile(join(directory, 'a.txt'), 'from the client');
  const name = nameOf('node');
  try {
    const template = Template({ fileContextPath: directory })
      .fromDockerfile(`FROM ${image}\nCOPY a.txt copied/\nENV COLOR=red\nRUN echo $COLOR > /color.txt`)
      .runCmd('echo of user > user.txt');
    await Template.build(template, name);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  const sandbox = await Sandbox.create(name, { timeoutMs: 120_000 });
  try {
    const { stdout } = await sandbox.commands.run('cat /copied/a.txt /color.txt user.txt; whoami; pwd; echo $COLOR');
    assert.equal(stdout, 'from the clientred\nof user\nuser\n/home/user\nred\n');
  } finally {
    await sandbox.kill();
  }
});

check('an image that the daemon lacks is refused with the command that helps', async () => {
  const template = Template().fromNodeImage('no-such');
  await assert.rejects(Template.build(template, nameOf('image')), /docker pull node:no-such/);
});

await runChecks();
