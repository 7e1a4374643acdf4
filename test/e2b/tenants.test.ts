import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { afterAll } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import type { E2bService } from './e2b-service.ts';
import { describeFlow } from './flow.ts';

const SECRET = 'a secret that is at least 32 bytes long';
const directory = mkdtempSync(join(tmpdir(), 'rookery-e2b-'));
const secretFile = join(directory, 'secret');
writeFileSync(secretFile, SECRET);
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const settings = ['enable_func_token_auth=true', `jwt.secretFile=${secretFile}`, 'e2b.domain=sandbox.test'];

describeFlow('E2B keys of two tenants', {
  file: 'tenants.py',
  environment: 'python',
  args: settings.flatMap(setting => ['--set', setting]),
  env: async service => {
    const keys = [await newKey(service, 'acme'), await newKey(service, 'acme'), await newKey(service, 'other')];
    return { E2B_API_KEY: keys[0] ?? '', KEYS: keys.join(' '), JWT: await tokenOf('acme') };
  },
});

/** Returns a key that the command line makes with the environment of a tenant's developer. */
async function newKey({ served, frontendUrl }: E2bService, tenant: string): Promise<string> {
  const args = ['token', 'create', '--e2b', '--tenant', tenant, '--role', 'developer'];
  const { code, output } = await run(process.execPath, [join(ROOT, 'dist/main.js'), ...args], {
    capture: true,
    env: {
      ROOKERY_ADDRESS: frontendUrl,
      ROOKERY_META_ADDRESS: served.metaUrl,
      ROOKERY_TOKEN: await tokenOf(tenant),
      ROOKERY_JWT_SECRET_FILE: secretFile,
      ROOKERY_DATA_DIR: served.dataDir,
    },
  });
  if (code !== 0 || !/^e2b_[0-9a-f]{40}\n$/.test(output)) throw new Error(`token create ended with ${code}: ${output}`);
  return output.trim();
}

async function tokenOf(tenant: string): Promise<string> {
  const jwt = new SignJWT({ role: 'developer' }).setProtectedHeader({ alg: 'HS256' }).setSubject(tenant);
  return await jwt.setExpirationTime('1h').sign(Buffer.from(SECRET));
}
