import java.io.*;
import java.net.InetAddress;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.*;
import org.apache.kafka.metadata.authorizer.*;
import org.apache.kafka.server.authorizer.*;

/** Apache Kafka's StandardAuthorizer by itself. Standard input, fields separated by tabs:
 *  NEW allowEveryone | ACL type name pattern principal host operation permission | ASK principal host operation type name
 *  | ANY principal host operation type. One line of output for each ASK and ANY: true or false. */
public class AuthorizerDecisions {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    static StandardAuthorizer authorizer;
    static Map<Uuid, StandardAcl> acls = new HashMap<>();
    static boolean allowEveryone, changed;

    static StandardAuthorizer ready() {
        if (changed) {
            authorizer = new StandardAuthorizer();
            authorizer.configure(Map.of("super.users", "User:root", "allow.everyone.if.no.acl.found", "" + allowEveryone, "node.id", "1"));
            authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
            authorizer.loadSnapshot(acls);
            authorizer.completeInitialLoad();
            changed = false;
        }
        return authorizer;
    }

    static Context context(String principal, String host) throws Exception {
        int colon = principal.indexOf(':');
        return new Context(new KafkaPrincipal(principal.substring(0, colon), principal.substring(colon + 1)), InetAddress.getByName(host));
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            String[] f = line.split("\t", -1);
            switch (f[0]) {
                case "NEW" -> { acls = new HashMap<>(); allowEveryone = Boolean.parseBoolean(f[1]); changed = true; }
                case "ACL" -> {
                    acls.put(Uuid.randomUuid(), new StandardAcl(ResourceType.fromCode(Byte.parseByte(f[1])), f[2],
                        PatternType.fromCode(Byte.parseByte(f[3])), f[4], f[5], AclOperation.fromCode(Byte.parseByte(f[6])),
                        AclPermissionType.fromCode(Byte.parseByte(f[7]))));
                    changed = true;
                }
                case "ASK" -> {
                    ResourcePattern resource = new ResourcePattern(ResourceType.fromCode(Byte.parseByte(f[4])), f[5], PatternType.LITERAL);
                    Action action = new Action(AclOperation.fromCode(Byte.parseByte(f[3])), resource, 1, false, false);
                    System.out.println(ready().authorize(context(f[1], f[2]), List.of(action)).get(0) == AuthorizationResult.ALLOWED);
                }
                case "ANY" -> System.out.println(ready().authorizeByResourceType(context(f[1], f[2]),
                    AclOperation.fromCode(Byte.parseByte(f[3])), ResourceType.fromCode(Byte.parseByte(f[4]))) == AuthorizationResult.ALLOWED);
            }
        }
    }
}
