import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { Bed } from '../e2e/agents.ts';

const HANDLER = `
import hashlib, os, stat

def handle(event, context):
    op = event["op"]
    if op == "make":
        os.makedirs("/data/deep/er")
        for n in range(200):
            with open("/data/deep/er/%d" % n, "w") as f:
                f.write(str(n) * n)
        os.chmod("/data/deep/er/1", 0o750)
        os.symlink("er/1", "/data/deep/link")
        os.link("/data/deep/er/2", "/data/deep/same")
    if op == "grow":
        with open("/data/large", "wb") as f:
            f.write(os.urandom(3 << 20))
    if op == "shrink":
        os.remove("/data/large")
    if op == "exit":
        os._exit(3)
    context.state["calls"] = context.state.get("calls", 0) + 1
    return tree()

def tree():
    whole = hashlib.sha256()
    for path, directories, files in os.walk("/data"):
        directories.sort()
        for name in sorted(files):
            at = os.path.join(path, name)
            seen = os.lstat(at)
            link = os.readlink(at) if stat.S_ISLNK(seen.st_mode) else ""
            whole.update(("%s %o %d %s\\n" % (at, seen.st_mode, seen.st_nlink, link)).encode())
            with open(at, "rb") as f:
                whole.update(f.read())
    return whole.hexdigest()
`;

/**
 * Checks the directory of a durable agent on a running service: it is the same after sleeps, a crash and a
 * kill of the service, it bounds the sleep, and the delete removes it.
 */
export async function checkDurableFiles(bed: Bed, spec: Readonly<Record<string, unknown>>): Promise<void> {
  writeFileSync(join(bed.codeDir, 'durable_files.py'), HANDLER);
  const durable = { files: { path: '/data', max_mb: 2 }, sleep_after_seconds: 0 };
  const id = await bed.create('files', 'durable_files.handle', spec, { durable });
  const call = async (op: string) => (await bed.invoke(id, { op })).body.data;
  const sleep = (query = '') => bed.ask('POST', `/api/agent/${id}/sleep${query}`);
  const made = await call('make');
  expect(made).toMatch(/^[0-9a-f]{64}$/);
  expect(await sleep()).toMatchObject({ status: 200 });
  expect(await call('look')).toBe(made);
  expect((await bed.invoke(id, { op: 'exit' })).status).toBe(500);
  expect(await call('look')).toBe(made);
  await bed.killAndRestart();
  expect(await call('look')).toBe(made);
  await call('grow');
  expect(await sleep()).toMatchObject({ status: 409, body: { awake_because: ['files 4 of 2 MB'] } });
  expect(await call('shrink')).toBe(made);
  expect(await sleep()).toMatchObject({ status: 200 });
  expect((await bed.ask('GET', `/api/agent/${id}`)).body.instance).toMatchObject({
    status: 'SLEEPING',
    durable: { files: { path: '/data', max_mb: 2 } },
  });
  const directory = join(bed.server.dataDir, 'agents', id.slice(0, 2));
  expect(readdirSync(directory)).toEqual([id]);
  expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
  expect(existsSync(join(directory, id))).toBe(false);
}
