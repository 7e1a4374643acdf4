import type { FastifyInstance } from 'fastify';
import { FUNCTION_REGISTER, readRegister } from '../../core/function-fields.ts';
import { LIMITS } from '../../core/limits.ts';
import { JSON_TYPE } from '../../http/answer.ts';
import type { Registry } from '../../registry/registry.ts';
import { FUNCTION_DOCS } from './function-docs.ts';
import { readRequest, warningsMember } from './requests.ts';

/** Adds operation 4 of the specification: register. */
export function addRegisterRoute(app: FastifyInstance, { functions }: Registry): void {
  app.post(
    '/serverless/v1/functions',
    { bodyLimit: LIMITS.requestBodyBytes, config: { access: 'write', docs: FUNCTION_DOCS.register } },
    async (request, reply) => {
      const wanted = readRequest(request, FUNCTION_REGISTER, readRegister);
      const { urn, record } = await functions.register(request.tenant, wanted);
      const warnings = warningsMember(request.warnings);
      reply.type(JSON_TYPE);
      return `{"code":0,"message":"SUCCESS","functionVersionUrn":${JSON.stringify(urn)},"function":${record}${warnings}}`;
    },
  );
}
