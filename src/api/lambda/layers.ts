import type { FastifyInstance } from 'fastify';
import { parseCodeUrl } from '../../core/code-package.ts';
import {
  LAMBDA_LAYER_VERSION,
  lambdaLayerArn,
  lambdaLayerVersionArn,
  readLambdaLayer,
} from '../../core/lambda-layers.ts';
import { CODE_BODY_BYTES, type CodeUploads } from './code-uploads.ts';
import { answering, type ByName, invalidValue, type RouteOptions } from './configuration.ts';
import { readLayerRequest } from './requests.ts';

/** Adds the route that publishes a layer: its zip becomes a code package, which functions name. */
export function addLayerRoute(app: FastifyInstance, path: string, uploads: CodeUploads, optionsOf: RouteOptions): void {
  const url = `${path}/:name/versions`;
  app.post<ByName>(url, { bodyLimit: CODE_BODY_BYTES, ...optionsOf('write', url) }, (request, reply) =>
    answering(reply.code(201), async () => {
      const { Content, ...described } = await readLayerRequest(request.body);
      const codePath = await uploads.pathOf(Content);
      await uploads.store(request.tenant, codePath, Content);
      const sha256 = parseCodeUrl(codePath) ?? '';
      return {
        Content: { CodeSha256: Buffer.from(sha256, 'hex').toString('base64'), CodeSize: Content.ZipFile?.length },
        LayerArn: lambdaLayerArn(sha256),
        LayerVersionArn: lambdaLayerVersionArn(sha256),
        Version: LAMBDA_LAYER_VERSION,
        CreatedDate: new Date().toISOString().replace('Z', '+0000'),
        ...described,
      };
    }),
  );
}

/** Returns `layers` of a function from the ARNs that a client sent. Fails for other texts. */
export function fromLambdaLayers(arns: readonly string[]): readonly string[] | null {
  const layers = arns.map((arn, index) => {
    const layer = readLambdaLayer(arn);
    if (layer !== null) return layer;
    const advice = 'publish it with PublishLayerVersion, and send the LayerVersionArn of the answer';
    throw invalidValue(`Layers[${index}] names no layer of this service, got "${arn}": ${advice}`);
  });
  return layers.length === 0 ? null : layers;
}
