import type { FastifyInstance } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { readEnv } from '../../core/agent.ts';
import { type Fields, invalidBody, readBody } from '../../core/json.ts';
import { LIMITS } from '../../core/limits.ts';
import { withWarnings } from '../../http/answer.ts';
import { answerController } from '../../http/caller.ts';
import type { ExecRequest } from '../../sandbox/driver.ts';
import { AGENT_DOCS } from './docs.ts';

/** `POST /api/agent/{instanceId}/exec`: one command inside the sandbox. It ends when the caller goes away. */
export function addExecRoute(app: FastifyInstance, instances: AgentInstances): void {
  app.post<{ Params: { instanceId: string } }>(
    '/api/agent/:instanceId/exec',
    { config: { access: 'write', longLived: true, docs: AGENT_DOCS.exec } },
    async (request, reply) => {
      const body = readBody(request.body as Buffer | undefined);
      const command = readExec(body);
      request.warnings = body.warnings();
      const { signal } = answerController(reply.raw);
      const { returncode, stdout, stderr, truncated } = await instances.exec(
        request.tenant,
        request.params.instanceId,
        command,
        signal,
      );
      return withWarnings({ returncode, stdout, stderr, truncated }, request.warnings);
    },
  );
}

/** A text is run by `/bin/sh -c`, a list is an argument vector. Fails with `invalid_request`. */
function readExec(body: Fields): ExecRequest {
  const argv = body.isText('command') ? ['/bin/sh', '-c', body.requiredText('command')] : readArgv(body);
  const seconds = body.number('timeout', { min: 0.001, max: LIMITS.execTimeoutSeconds.max });
  return {
    argv,
    workingDir: body.text('working_dir') ?? '',
    env: readEnv(body, 'env'),
    stdin: body.rawText('stdin') ?? '',
    timeoutMs: Math.ceil((seconds ?? LIMITS.execTimeoutSeconds.default) * 1000),
    maxOutputBytes: LIMITS.execOutputBytes,
  };
}

function readArgv(body: Fields): string[] {
  if (!body.has('command')) throw invalidBody('command is required');
  if (!body.isList('command')) throw invalidBody('command must be a string or an array of strings');
  const argv = body.texts('command') ?? [];
  if (argv.length === 0 || argv[0] === '') throw invalidBody('command must name a program');
  return argv;
}
