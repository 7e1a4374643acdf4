import type { FastifyInstance } from 'fastify';
import { internal, ServiceError } from '../core/error.ts';
import { readRegister } from '../core/function-fields.ts';
import { LIMITS } from '../core/limits.ts';
import type { Exchange } from '../http/exchange.ts';
import { addHotRoute } from '../http/hot-route.ts';
import type { Registry } from '../registry/registry.ts';
import { metaErrors } from './errors.ts';
import { FUNCTION_DOCS } from './function-docs.ts';
import { accept, readObject } from './requests.ts';

/** Operation 4: register. Pipelines register all that they have at once, so it takes the short way. */
export function addRegisterRoute(app: FastifyInstance, { functions }: Registry): void {
  addHotRoute(app, {
    url: '/serverless/v1/functions',
    parameter: null,
    bodyLimit: LIMITS.requestBodyBytes,
    config: { access: 'write', docs: FUNCTION_DOCS.register },
    handle: exchange => {
      register(exchange, functions)
        .catch((error: unknown) => fail(exchange, error))
        .catch((error: unknown) => exchange.fault(error));
    },
    refuse: fail,
  });
}

async function register(exchange: Exchange, functions: Registry['functions']): Promise<void> {
  const spec = accept(readRegister(readObject(exchange.body)));
  const { urn, record } = await functions.register(exchange.tenant, spec);
  exchange.answer(
    200,
    `{"code":0,"message":"SUCCESS","functionVersionUrn":${JSON.stringify(urn)},"function":${record}}`,
  );
}

function fail(exchange: Exchange, error: unknown): void {
  const text = `internal error: the log has it under trace id ${exchange.traceId}`;
  const known = error instanceof ServiceError ? error : internal(text, { cause: error });
  exchange.fail(known, metaErrors(known, exchange));
}
