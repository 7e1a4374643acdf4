import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { ServiceError } from '../../core/error.ts';
import {
  type Access,
  checkAccess,
  isRefusal,
  type Refusal,
  type TokenVerifier,
} from '../../http/access/credentials.ts';
import { tenantOf } from '../../http/access/gate.ts';
import { headerText, sendError } from '../../http/answer.ts';
import { forwardedOf } from '../../http/forwarding.ts';
import { drained } from '../../http/limits/drained.ts';
import type { OwnGate, Route } from '../../http/route-config.ts';
import type { AwsKeys } from '../../registry/aws-keys.ts';
import { LambdaError, type LambdaRefusal, refusalAnswer, refusalHeaders, refusalOf } from './failures.ts';
import { isSigned, type RequestSignature, readSignature, unknownKey, verifySignature } from './signature.ts';

export interface SignatureGateOptions {
  readonly keys: Pick<AwsKeys, 'find'>;
  /** The verifier of tokens. null: authentication is off, and signatures are ignored. */
  readonly auth: TokenVerifier | null;
}

/** A signature that is verified when the body has arrived. */
interface Pending {
  readonly signature: RequestSignature;
  readonly secret: string;
}

/**
 * Returns gates for routes that a signature of AWS opens, or a token of the service. The key, the time and
 * the right of a signed request are checked before its body is read, the signature itself afterwards.
 */
export function signatureGates(app: FastifyInstance, { keys, auth }: SignatureGateOptions) {
  const pending = new WeakMap<IncomingMessage, Pending>();
  app.addHook('preHandler', async (request, reply) => {
    const found = pending.get(request.raw);
    if (found === undefined) return;
    try {
      await verifySignature(found.signature, found.secret, request.raw, request.body as Buffer | undefined);
    } catch (error) {
      if (!(error instanceof LambdaError)) throw error;
      return await sendLambdaRefusal(reply, error.refusal);
    }
  });

  const admit = async (raw: IncomingMessage, route: Route & { readonly access: Access }) => {
    const signature = readSignature(raw, Date.now());
    const key = await keys.find(signature.accessKeyId);
    if (key === null) throw unknownKey();
    const { tenant, role } = key;
    checkAccess(key, route.access);
    tenantOf(raw.headers, tenant);
    pending.set(raw, { signature, secret: key.secret });
    return { tenant, role, route };
  };

  return (route: Route & { readonly access: Access }): OwnGate =>
    async ({ raw }) => {
      const isOpen = auth === null || !isSigned(raw.headers) || forwardedOf(raw) !== undefined;
      const verdict = await app.gate(raw, isOpen ? route : { ...route, access: 'public' });
      if (isRefusal(verdict)) return verdict;
      if (isOpen) return { ...verdict, route };
      try {
        return await admit(raw, route);
      } catch (error) {
        const refused = refusalOf(error);
        if (refused === null) throw error;
        // The client reads the answer only when it has sent the body.
        await drained(raw);
        return asRefusal(error, refused);
      }
    };
}

function asRefusal(error: unknown, refused: LambdaRefusal): Refusal {
  return { reason: error instanceof ServiceError ? error : refused.message, ...refusalAnswer(refused) };
}

/** Answers a refusal in the form of this API. */
export function sendLambdaRefusal(reply: FastifyReply, refusal: LambdaRefusal): FastifyReply {
  const headers = refusalHeaders(refusal);
  for (let at = 0; at < headers.length; at += 2) reply.header(headers[at] as string, headerText(headers[at + 1]));
  return sendError(reply, refusal.message, refusalAnswer(refusal));
}
