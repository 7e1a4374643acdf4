import { Type } from 'typebox';
import { RESERVATION, RESERVATION_PART, RESERVATION_SELECT } from '../../core/reservation.ts';
import { Warnings } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { handled, WRONG_REQUEST } from './docs.ts';
import { Done } from './schemas.ts';

const tags = ['reserved instances'];
const clusters = Type.Array(
  Type.Object({ clusterId: Type.String(), minInstance: Type.Integer(), maxInstance: Type.Integer() }),
);
const Written = Type.Object({
  code: Type.Literal(0),
  message: Type.Literal(''),
  instanceConfigInfos: clusters,
  reserveInsBaseInfo: Type.Object({ funcName: Type.String(), version: Type.String(), instanceLabel: Type.String() }),
  warnings: Warnings,
});
const Listed = Type.Object({
  code: Type.Literal(0),
  message: Type.Literal(''),
  total: Type.Integer(),
  results: Type.Array(Type.Object({ instanceLabel: Type.String(), instanceConfigInfos: clusters })),
});

/** The OpenAPI documentation of reserved instances. */
export const RESERVATION_DOCS = {
  create: {
    tags,
    operationId: 'createReservedInstances',
    summary: 'Create or replace the reserved instances of a label',
    body: RESERVATION.describe(),
    response: { 200: handled('They are reserved.', Written), ...WRONG_REQUEST },
  },
  update: {
    tags,
    operationId: 'updateReservedInstances',
    summary: 'Update the reserved instances of a label that were created before',
    description: 'Clusters that are not named, and numbers that are not sent, are kept.',
    body: RESERVATION.describe(),
    response: { 200: handled('They are updated.', Written), ...WRONG_REQUEST },
  },
  list: {
    tags,
    operationId: 'listReservedInstances',
    summary: 'Query the reserved instances of a function version',
    querystring: RESERVATION_SELECT.describe(),
    response: { 200: handled('All labels, or the one that was named.', Listed), ...WRONG_REQUEST },
  },
  delete: {
    tags,
    operationId: 'deleteReservedInstances',
    summary: 'Delete the reserved instances of one label, or of all labels of a version',
    description:
      'Each field may stand in the query or in a JSON body; what the body does not have is taken from the query. `funcName` and `version` are required in one of the two.',
    querystring: RESERVATION_PART.describe(),
    body: RESERVATION_PART.describe(),
    isBodyOptional: true,
    response: { 200: handled('They are deleted.', Done), ...WRONG_REQUEST },
  },
} as const satisfies Record<string, RouteDocs>;
