import type { FastifyInstance } from 'fastify';
import type { JsonObject } from '../../core/json.ts';
import type { Sent } from '../../core/parameter.ts';
import { quote } from '../../core/problem.ts';
import {
  RESERVATION,
  RESERVATION_SELECT,
  type Reservation,
  type ReservationRequest,
  readReservation,
  readReservationBase,
} from '../../core/reservation.ts';
import { unknownFieldWarnings } from '../../core/unknown-names.ts';
import { FUNCTION_NAME_FORMAT, isFunctionName } from '../../core/urn.ts';
import { withWarnings } from '../../http/answer.ts';
import { wrongRequest } from '../../registry/errors.ts';
import { knownName, readFunctionName } from '../../registry/function-record.ts';
import type { Registry } from '../../registry/registry.ts';
import { RESERVATION_DOCS } from './docs.ts';
import { accept, queryText, readOptionalObject, readRequest } from './requests.ts';

const PATH = '/serverless/v1/functions/reserve-instance';

/** Adds operation 9 of the specification, and create, query and delete of reserved instances. */
export function addReservationRoutes(app: FastifyInstance, registry: Registry): void {
  const { reservations, business, defaultCluster } = registry;

  const read = (body: JsonObject) => readReservation(body, defaultCluster);

  /** Replaces `funcName` with the plain name of the function, which may be sent as a URN. */
  const withName = <T extends Pick<ReservationRequest, 'funcName' | 'version'>>(request: T, tenant: string): T => {
    const fn = readFunctionName(request.funcName, tenant, business);
    if (!isFunctionName(fn.name)) {
      throw wrongRequest([
        `funcName must have the format ${FUNCTION_NAME_FORMAT}, or be a URN; got ${quote(request.funcName)}`,
      ]);
    }
    if (fn.version !== null && fn.version !== request.version) {
      throw wrongRequest([`version "${request.version}" and the version "${fn.version}" of the URN differ`]);
    }
    return { ...request, funcName: knownName(fn) };
  };

  app.post(PATH, { config: { access: 'write', docs: RESERVATION_DOCS.create } }, async request => {
    const reservation = withName(readRequest(request, RESERVATION, read), request.tenant);
    const stored = await reservations.put(request.tenant, reservation);
    return withWarnings(written(reservation, stored), request.warnings);
  });

  app.put(PATH, { config: { access: 'write', docs: RESERVATION_DOCS.update } }, async request => {
    const reservation = withName(readRequest(request, RESERVATION, read), request.tenant);
    const stored = await reservations.update(request.tenant, reservation);
    return withWarnings(written(reservation, stored), request.warnings);
  });

  app.get<{ Querystring: Sent }>(PATH, { config: { access: 'read', docs: RESERVATION_DOCS.list } }, async request => {
    const { funcName, version, instanceLabel } = withName(
      accept(readReservationBase(fromQuery(request.query))),
      request.tenant,
    );
    const all = await reservations.list(request.tenant, funcName, version);
    const found = instanceLabel === '' ? all : all.filter(({ label }) => label === instanceLabel);
    return {
      code: 0,
      message: '',
      total: found.length,
      results: found.map(({ label, clusters }) => ({ instanceLabel: label, instanceConfigInfos: clusters })),
    };
  });

  app.delete<{ Querystring: Sent }>(
    PATH,
    { config: { access: 'write', docs: RESERVATION_DOCS.delete } },
    async request => {
      const sent = readOptionalObject(request.body);
      // Without this merge, a label that is only in the query would delete all labels.
      const source = Object.fromEntries(
        Object.entries(fromQuery(request.query)).map(([field, value]) => [field, sent[field] ?? value]),
      );
      request.warnings = unknownFieldWarnings(RESERVATION_SELECT, sent);
      await reservations.delete(request.tenant, withName(accept(readReservationBase(source)), request.tenant));
      return withWarnings({ code: 0, message: '' }, request.warnings);
    },
  );
}

/** Reads the fields of a body from a query. */
function fromQuery(query: Sent): JsonObject {
  return Object.fromEntries(Object.keys(RESERVATION_SELECT.fields).map(name => [name, queryText(query, name)]));
}

function written({ funcName, version }: ReservationRequest, { label, clusters }: Reservation) {
  return {
    code: 0,
    message: '',
    instanceConfigInfos: clusters,
    reserveInsBaseInfo: { funcName, version, instanceLabel: label },
  };
}
