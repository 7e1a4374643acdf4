import { secretsOf } from '../../core/secret.ts';
import { secretsOfService } from '../secret/secret.ts';
import type { Client } from '../shared/client.ts';
import type { Deployment } from './file.ts';

/** Returns the sentence about secrets that the file needs and the service lacks, or null. */
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
