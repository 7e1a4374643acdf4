import type { FastifyRequest } from 'fastify';
import { readE2bFork } from '../../core/e2b.ts';
import { frontendErrors } from '../errors.ts';
import { type ForksOptions, forkSandbox } from '../sandbox-forks.ts';
import { createdView, type SandboxFacts } from './answers.ts';
import { type AddRoute, bodyOf } from './control.ts';
import type { E2bSandbox, E2bSandboxes } from './sandboxes.ts';

export interface ForkRouteOptions extends ForksOptions {
  readonly sandboxes: Pick<E2bSandboxes, 'of'>;
  readonly facts: SandboxFacts;
  /** Returns a sandbox of the tenant. Fails with `not_found`. */
  readonly find: (tenant: string, sandboxId: string) => Promise<E2bSandbox>;
}

/** Adds the route that starts sandboxes with the files of another one. `change` are its options. */
export function addForkRoute(add: AddRoute, change: Parameters<AddRoute>[2], options: ForkRouteOptions): void {
  add('POST', ['/sandboxes/:sandboxID/fork'], change, async (request, reply) =>
    reply.code(201).send(await fork(request, options)),
  );
}

/** Starts the forks, and returns an entry for each: the sandbox, or the error of its start. */
async function fork(
  request: FastifyRequest<{ Params: { sandboxID: string } }>,
  { sandboxes, facts, find, ...options }: ForkRouteOptions,
): Promise<readonly Record<string, unknown>[]> {
  const { instance } = await find(request.tenant, request.params.sandboxID);
  const { count, timeout, memory } = readE2bFork(bodyOf(request));
  const wanted = {
    count,
    isFilesOnly: !memory,
    insteadOfEnding: 'use create_snapshot(mode="filesystem") and create',
    changeOf: () => ({ ttlMs: timeout * 1000 }),
  };
  return (await forkSandbox(instance, wanted, options)).map(outcome => {
    if ('instance' in outcome) return { sandbox: createdView(sandboxes.of(outcome.instance), facts) };
    const { status, body } = frontendErrors(outcome.error);
    return { error: { code: status, message: body.message } };
  });
}
