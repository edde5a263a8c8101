import java.io.*;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;

/** Apache's admin client 4.3 over SASL_SSL: java SecuredAdmin.java BOOTSTRAP FOLDER PLAINTEXT CASE. Ends with status 1 at the
 *  first surprise. FOLDER has the files of the users: operator.properties of a super user, alice.properties, testuser.properties;
 *  PLAINTEXT is the address of a listener without a login. */
public class SecuredAdmin {
    static final String SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule";
    static String bootstrap, folder, plaintext;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        folder = args[1];
        plaintext = args[2];
        switch (args[3]) {
            case "acls" -> acls();
            case "tokens" -> tokens();
            default -> throw new IllegalArgumentException(args[3]);
        }
        System.out.println("ok " + args[3]);
        System.exit(0);
    }

    static Properties settings(String user) throws IOException {
        Properties found = new Properties();
        try (var reader = new FileReader(new File(folder, user + ".properties"))) {
            found.load(reader);
        }
        found.put("bootstrap.servers", bootstrap);
        found.put("default.api.timeout.ms", "30000");
        return found;
    }

    static Admin as(String user) throws IOException {
        return Admin.create(settings(user));
    }

    static Admin asToken(DelegationToken token) throws IOException {
        Properties settings = settings("testuser");
        settings.put("sasl.jaas.config", SCRAM + " required username=\"" + token.tokenInfo().tokenId() + "\" password=\""
            + token.hmacAsBase64String() + "\" tokenauth=\"true\";");
        return Admin.create(settings);
    }

    static void require(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(String.valueOf(what));
        }
    }

    static void equal(Object expected, Object found) {
        require(Objects.equals(expected, found), "expected " + expected + ", found " + found);
    }

    static void fails(Class<? extends Throwable> expected, KafkaFuture<?> future) throws InterruptedException {
        try {
            Object found = future.get();
            throw new AssertionError("expected " + expected.getSimpleName() + ", found " + found);
        } catch (ExecutionException failed) {
            equal(expected, failed.getCause().getClass());
        }
    }

    interface Check { boolean holds() throws Exception; }

    /** Changes reach an authorizer and the tokens' cache a moment after the controller has confirmed them. */
    static void until(String what, Check condition) throws Exception {
        long end = System.nanoTime() + 40_000_000_000L;
        while (!condition.holds()) {
            require(System.nanoTime() < end, "waited in vain: " + what);
            Thread.sleep(20);
        }
    }

    static boolean failsWith(Class<? extends Throwable> expected, KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return false;
        } catch (ExecutionException failed) {
            return expected == failed.getCause().getClass();
        }
    }

    static AclBinding acl(ResourceType type, String name, PatternType pattern, String principal, AclOperation operation, AclPermissionType permission) {
        return new AclBinding(new ResourcePattern(type, name, pattern), new AccessControlEntry(principal, "*", operation, permission));
    }

    static AclBindingFilter of(ResourceType type, String name, PatternType pattern) {
        return new AclBindingFilter(new ResourcePatternFilter(type, name, pattern), AccessControlEntryFilter.ANY);
    }

    static Set<AclBinding> described(Admin admin, AclBindingFilter filter) throws Exception {
        return new HashSet<>(admin.describeAcls(filter).values().get());
    }

    static void acls() throws Exception {
        try (Admin operator = as("operator"); Admin user = as("testuser")) {
            String prefix = "java-" + UUID.randomUUID().toString().substring(0, 8);
            AclBinding literal = acl(ResourceType.TOPIC, prefix + "-eu", PatternType.LITERAL, "User:alice", AclOperation.WRITE, AclPermissionType.ALLOW);
            AclBinding prefixed = acl(ResourceType.TOPIC, prefix, PatternType.PREFIXED, "User:bob", AclOperation.READ, AclPermissionType.ALLOW);
            AclBinding denied = acl(ResourceType.TOPIC, prefix + "-us", PatternType.LITERAL, "User:alice", AclOperation.ALL, AclPermissionType.DENY);
            AclBinding group = acl(ResourceType.GROUP, prefix, PatternType.PREFIXED, "User:alice", AclOperation.READ, AclPermissionType.ALLOW);
            AclBinding transaction = acl(ResourceType.TRANSACTIONAL_ID, prefix, PatternType.LITERAL, "User:alice", AclOperation.DESCRIBE, AclPermissionType.ALLOW);
            AclBinding tokenOwner = acl(ResourceType.USER, "User:" + prefix, PatternType.LITERAL, "User:alice", AclOperation.CREATE_TOKENS, AclPermissionType.ALLOW);
            Set<AclBinding> all = Set.of(literal, prefixed, denied, group, transaction, tokenOwner);
            operator.createAcls(all).all().get();
            until("the ACLs count", () -> described(operator, AclBindingFilter.ANY).containsAll(all));
            operator.createAcls(all).all().get(); // again: no change, no error

            equal(Set.of(literal), described(operator, of(ResourceType.TOPIC, prefix + "-eu", PatternType.LITERAL)));
            equal(Set.of(literal, prefixed), described(operator, of(ResourceType.TOPIC, prefix + "-eu", PatternType.MATCH)));
            equal(Set.of(prefixed), described(operator, of(ResourceType.TOPIC, prefix, PatternType.ANY)));
            equal(Set.of(prefixed, group), described(operator, of(ResourceType.ANY, prefix, PatternType.PREFIXED)));
            equal(Set.of(denied), described(operator, new AclBindingFilter(
                new ResourcePatternFilter(ResourceType.TOPIC, prefix + "-us", PatternType.MATCH),
                new AccessControlEntryFilter("User:alice", null, AclOperation.ALL, AclPermissionType.DENY))));
            equal(Set.of(), described(operator, new AclBindingFilter(
                new ResourcePatternFilter(ResourceType.TOPIC, prefix + "-eu", PatternType.LITERAL),
                new AccessControlEntryFilter(null, "10.0.0.1", AclOperation.ANY, AclPermissionType.ANY))));
            equal(Set.of(tokenOwner), described(operator, of(ResourceType.USER, "User:" + prefix, PatternType.LITERAL)));

            // One that cannot be created does not stop the others.
            AclBinding good = acl(ResourceType.TOPIC, prefix + "-good", PatternType.LITERAL, "User:alice", AclOperation.READ, AclPermissionType.ALLOW);
            AclBinding bad = acl(ResourceType.CLUSTER, "another-cluster", PatternType.LITERAL, "User:alice", AclOperation.ALTER, AclPermissionType.ALLOW);
            AclBinding noType = acl(ResourceType.TOPIC, prefix + "-good", PatternType.LITERAL, "alice", AclOperation.READ, AclPermissionType.ALLOW);
            var outcomes = operator.createAcls(List.of(good, bad, noType)).values();
            outcomes.get(good).get();
            fails(InvalidRequestException.class, outcomes.get(bad));
            fails(InvalidRequestException.class, outcomes.get(noType));

            // A user who is none of the cluster's administrators once there is an ACL for the cluster.
            AclBinding ofCluster = acl(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:nobody", AclOperation.ALTER, AclPermissionType.ALLOW);
            user.describeAcls(of(ResourceType.TOPIC, prefix, PatternType.ANY)).values().get();
            operator.createAcls(List.of(ofCluster)).all().get();
            until("the user is denied", () -> failsWith(ClusterAuthorizationException.class, user.describeAcls(AclBindingFilter.ANY).values()));
            fails(ClusterAuthorizationException.class, user.createAcls(List.of(literal)).all());
            fails(ClusterAuthorizationException.class, user.deleteAcls(List.of(AclBindingFilter.ANY)).all());
            operator.deleteAcls(List.of(ofCluster.toFilter())).all().get();
            until("the user is allowed again", () -> !failsWith(ClusterAuthorizationException.class, user.describeAcls(AclBindingFilter.ANY).values()));

            // Several filters: what each of them has removed.
            AclBindingFilter matching = of(ResourceType.TOPIC, prefix + "-eu", PatternType.MATCH);
            AclBindingFilter none = of(ResourceType.TOPIC, prefix + "-elsewhere", PatternType.LITERAL);
            var deleted = operator.deleteAcls(List.of(matching, none)).values();
            equal(Set.of(literal, prefixed), deleted.get(matching).get().values().stream().map(DeleteAclsResult.FilterResult::binding).collect(Collectors.toSet()));
            equal(List.of(), deleted.get(none).get().values());
            Collection<AclBindingFilter> rest = List.of(denied.toFilter(), group.toFilter(), transaction.toFilter(), tokenOwner.toFilter(), good.toFilter());
            equal(5, operator.deleteAcls(rest).all().get().size());
            until("no ACL is left", () -> described(operator, AclBindingFilter.ANY).stream().noneMatch(each -> all.contains(each) || each.equals(good)));
        }
    }

    static Set<String> tokensOf(Admin admin, String... owners) throws Exception {
        var options = new DescribeDelegationTokenOptions();
        if (owners.length > 0) {
            options.owners(Arrays.stream(owners).map(SecuredAdmin::principal).toList());
        }
        return admin.describeDelegationToken(options).delegationTokens().get().stream().map(each -> each.tokenInfo().tokenId()).collect(Collectors.toSet());
    }

    static KafkaPrincipal principal(String name) {
        return new KafkaPrincipal(KafkaPrincipal.USER_TYPE, name);
    }

    static void tokens() throws Exception {
        try (Admin operator = as("operator"); Admin user = as("testuser"); Admin alice = as("alice"); Admin test = as("test")) {
            DelegationToken token = user.createDelegationToken(
                new CreateDelegationTokenOptions().renewers(List.of(principal("alice"))).maxLifetimeMs(3_600_000)).delegationToken().get();
            var info = token.tokenInfo();
            equal(principal("testuser"), info.owner());
            equal(principal("testuser"), info.tokenRequester());
            equal(List.of(principal("alice")), new ArrayList<>(info.renewers()));
            equal(info.issueTimestamp() + 3_600_000, info.maxTimestamp());
            require(info.issueTimestamp() < info.expiryTimestamp() && info.expiryTimestamp() <= info.maxTimestamp(), info);
            String id = info.tokenId();
            until("the token is described", () -> tokensOf(user).contains(id));
            require(tokensOf(user, "testuser").contains(id), "by owner");
            require(tokensOf(user, "alice").contains(id), "renewers count as owners");
            require(!tokensOf(user, "test").contains(id), "of another owner");
            require(tokensOf(alice).contains(id), "to its renewer");
            require(tokensOf(test).contains(id), "to everyone without an ACL for it");
            operator.createAcls(List.of(
                acl(ResourceType.DELEGATION_TOKEN, id, PatternType.LITERAL, "User:alice", AclOperation.DESCRIBE, AclPermissionType.ALLOW),
                acl(ResourceType.USER, "User:testuser", PatternType.LITERAL, "User:alice", AclOperation.DESCRIBE_TOKENS, AclPermissionType.ALLOW)
            )).all().get();
            until("the token is hidden from a stranger", () -> !tokensOf(test).contains(id));
            require(tokensOf(operator).contains(id), "to a super user");

            until("the token logs in", () -> {
                try (Admin own = asToken(token)) {
                    return !failsWith(SaslAuthenticationException.class, own.describeCluster().nodes());
                }
            });
            try (Admin own = asToken(token)) { // as its owner, but without a right to tokens
                own.listTopics().names().get();
                fails(UnsupportedByAuthenticationException.class, own.createDelegationToken().delegationToken());
                fails(UnsupportedByAuthenticationException.class, own.renewDelegationToken(token.hmac()).expiryTimestamp());
            }
            try (Admin nobody = Admin.create(Map.of("bootstrap.servers", plaintext, "default.api.timeout.ms", "30000"))) {
                fails(UnsupportedByAuthenticationException.class, nobody.createDelegationToken().delegationToken());
            }

            long renewed = alice.renewDelegationToken(token.hmac(), new RenewDelegationTokenOptions().renewTimePeriodMs(60_000)).expiryTimestamp().get();
            require(renewed < info.expiryTimestamp(), renewed);
            fails(DelegationTokenOwnerMismatchException.class, test.renewDelegationToken(token.hmac()).expiryTimestamp());
            fails(DelegationTokenOwnerMismatchException.class, test.expireDelegationToken(token.hmac()).expiryTimestamp());
            fails(DelegationTokenNotFoundException.class, user.renewDelegationToken(new byte[32]).expiryTimestamp());
            fails(DelegationTokenNotFoundException.class, user.expireDelegationToken(new byte[32]).expiryTimestamp());
            fails(InvalidPrincipalTypeException.class, user.createDelegationToken(
                new CreateDelegationTokenOptions().renewers(List.of(new KafkaPrincipal("Group", "staff")))).delegationToken());

            DelegationToken given = operator.createDelegationToken(new CreateDelegationTokenOptions().owner(principal("alice"))).delegationToken().get();
            equal(principal("alice"), given.tokenInfo().owner());
            equal(principal("operator"), given.tokenInfo().tokenRequester());
            until("alice has a token", () -> tokensOf(alice, "alice").contains(given.tokenInfo().tokenId()));
            alice.expireDelegationToken(given.hmac()).expiryTimestamp().get();

            user.expireDelegationToken(token.hmac(), new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get();
            until("the token is gone", () -> !tokensOf(user).contains(id));
            try (Admin own = asToken(token)) {
                fails(SaslAuthenticationException.class, own.describeCluster().nodes());
            }
        }
    }
}
