import type { FastifyInstance } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { EXEC, readExec } from '../../core/exec.ts';
import { LIMITS } from '../../core/limits.ts';
import { answerController } from '../../http/access/caller.ts';
import { withWarnings } from '../../http/answer.ts';
import { readRequest } from '../../http/request.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { AGENT_DOCS } from './docs.ts';

/** Return code of a command that exceeded its time limit. No program returns -1. */
const TIMED_OUT = -1;

/**
 * Adds `POST /api/agent/{instanceId}/exec`, which runs a command in the sandbox.
 * The command is terminated when the client disconnects.
 */
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
      const timedOut = returncode === TIMED_OUT;
      return withWarnings({ returncode, stdout, stderr, truncated, timed_out: timedOut }, request.warnings);
    },
  );
}
