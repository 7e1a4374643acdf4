import { secretsOf } from '../core/secret.ts';
import type { Client } from './client.ts';
import type { Deployment } from './deploy-file.ts';
import { secretsOfService } from './secret.ts';

/** The sentence about the secrets that the file names, or refers to, and that the service does not have; null: it has all. */
export async function missingSecrets(client: Client, deployment: Deployment): Promise<string | null> {
  const { secrets, agents, functions, jobs } = deployment;
  const used = [agents, functions, jobs].flatMap(all => Object.values(all).flatMap(({ env }) => secretsOf(env)));
  const wanted = [...new Set([...secrets, ...used])];
  if (wanted.length === 0) return null;
  const there = new Set((await secretsOfService(client)).map(({ name }) => name));
  const missing = wanted.filter(name => !there.has(name));
  if (missing.length === 0) return null;
  const which = missing.length === 1 ? 'The secret' : 'The secrets';
  return `${which} ${missing.join(', ')} must be there first: rookery secret set ${missing[0]}`;
}
