import type { FastifyInstance } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { EXEC, readExec } from '../../core/exec.ts';
import { LIMITS } from '../../core/limits.ts';
import { withWarnings } from '../../http/answer.ts';
import { answerController } from '../../http/caller.ts';
import { readRequest } from '../../http/request.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { AGENT_DOCS } from './docs.ts';

/** `POST /api/agent/{instanceId}/exec`: one command inside the sandbox. It ends when the caller goes away. */
export function addExecRoute(app: FastifyInstance, instances: AgentInstances): void {
  app.post<{ Params: { instanceId: string } }>(
    '/api/agent/:instanceId/exec',
    { config: { access: 'write', longLived: true, livesWith: LIVES_WITH_AGENT, docs: AGENT_DOCS.exec } },
    async (request, reply) => {
      const sent = readRequest(request, EXEC, readExec);
      const command = {
        argv: sent.command,
        workingDir: sent.working_dir,
        env: sent.env,
        stdin: sent.stdin,
        timeoutMs: Math.ceil(sent.timeout * 1000),
        maxOutputBytes: LIMITS.execOutputBytes,
      };
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
