/** Checks sandboxes of images of a Docker daemon with the newest JavaScript SDK. */
import assert from 'node:assert/strict';
import { Sandbox } from 'e2b';
import { check, runChecks } from './checks.mjs';

const { DEBIAN_IMAGE: image } = process.env;

check('a sandbox of an image runs commands and keeps files', async () => {
  const sandbox = await Sandbox.create(image, { timeoutMs: 120_000 });
  try {
    const { stdout } = await sandbox.commands.run('whoami; pwd; python3 -c "print(6 * 7)"');
    assert.equal(stdout, 'user\n/home/user\n42\n');
    await sandbox.files.write('dir/a.txt', 'from the client');
    assert.equal(
      (await sandbox.commands.run('cat dir/a.txt', { user: 'root', cwd: '/home/user' })).stdout,
      'from the client',
    );
    assert.equal((await sandbox.getInfo()).templateId, image);
  } finally {
    assert.equal(await sandbox.kill(), true);
  }
});

check('an unknown image is refused with the way to get it', async () => {
  await assert.rejects(Sandbox.create('rookery-test/no-such-image:1'), /docker pull rookery-test\/no-such-image:1/);
});

await runChecks();
