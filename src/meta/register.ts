import type { FastifyInstance } from 'fastify';
import { internal, ServiceError } from '../core/error.ts';
import { FUNCTION_REGISTER, readRegister } from '../core/function-fields.ts';
import { LIMITS } from '../core/limits.ts';
import { withWarnings } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { addHotRoute } from '../http/hot-route.ts';
import type { Registry } from '../registry/registry.ts';
import { metaErrors } from './errors.ts';
import { FUNCTION_DOCS } from './function-docs.ts';
import { readRequest, warningsMember } from './requests.ts';

/** Operation 4: register. Pipelines register all that they have at once, so it takes the short way. */
export function addRegisterRoute(app: FastifyInstance, { functions }: Registry): void {
  addHotRoute(app, {
    url: '/serverless/v1/functions',
    parameter: null,
    bodyLimit: LIMITS.requestBodyBytes,
    config: { access: 'write', docs: FUNCTION_DOCS.register },
    handle: exchange => {
      register(exchange, functions).catch((error: unknown) => exchange.fault(error));
    },
    refuse: (exchange, error) => fail(exchange, error, null),
  });
}

async function register(exchange: Exchange, functions: Registry['functions']): Promise<void> {
  const request: Parameters<typeof readRequest>[0] = { body: exchange.body, warnings: null };
  try {
    const { urn, record } = await functions.register(
      exchange.tenant,
      readRequest(request, FUNCTION_REGISTER, readRegister),
    );
    const warnings = warningsMember(request.warnings);
    exchange.answer(
      200,
      `{"code":0,"message":"SUCCESS","functionVersionUrn":${JSON.stringify(urn)},"function":${record}${warnings}}`,
    );
  } catch (error) {
    fail(exchange, error, request.warnings);
  }
}

function fail(exchange: Exchange, error: unknown, warnings: readonly string[] | null): void {
  const text = `internal error: the log has it under trace id ${exchange.traceId}`;
  const known = error instanceof ServiceError ? error : internal(text, { cause: error });
  const { status, body } = metaErrors(known, exchange);
  exchange.fail(known, { status, body: withWarnings(body, warnings) });
}
